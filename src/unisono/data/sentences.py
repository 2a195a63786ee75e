"""synthetic-text: made-up English sentences, so that a language model can be tried without a corpus.

The one idea: sentences follow a small grammar (singular or plural, present or past, who does what where), so that a
model has something to learn at every length, from letters to agreement; words are drawn from a keyed stream, so equal
options and seed give equal text on any machine.

    synthetic-text:characters=50000,context=64,test=0.1,seed=3

`seed` is that of the run unless given.
Limits: some 110 words. The best possible loss is far below that of real text.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.data.options import DataOptions
from unisono.data.raw import Raw
from unisono.data.text import MEMORY_A_CHARACTER, TextOptions, parse, windows
from unisono.errors import UserError
from unisono.resources import check_memory
from unisono.rng import generator

NOUNS = [
    "dog", "cat", "bird", "horse", "child", "teacher", "farmer", "sailor", "baker",
    "river", "tree", "garden", "boat", "window", "lamp", "letter", "song", "stone",
]  # fmt: skip
ADJECTIVES = [
    "old", "young", "small", "tall", "quiet", "green", "happy", "tired", "clever", "strange", "warm", "bright",
]  # fmt: skip
VERBS = ["watch", "follow", "find", "help", "remember", "paint", "greet", "need", "reach", "like"]
PLACES = [
    "in the village", "on the hill", "near the sea", "behind the house", "under the bridge", "by the road",
    "at the market",
]  # fmt: skip
TIMES = ["in the morning", "at night", "every day", "after the rain", "before dinner", "in winter"]
LINKS = ["and", "but", "so", "while", "because"]
PLURALS = {"child": "children"}
PASTS = {"find": "found", "like": "liked"}

_STREAM = 3
"""Beside the streams of `synthetic.py`, which has 0 to 2."""
_SENTENCES_A_PARAGRAPH = 6


@final
@dataclass(frozen=True)
class SentenceOptions:
    """What stands after `synthetic-text:`."""

    characters: int = 50_000
    context: int = 64
    test: float = 0.1
    seed: int = -1
    """-1: the seed of the run."""


def load_sentences(arguments: str, options: DataOptions) -> Raw:
    """The windows of the text that `arguments` (what follows `synthetic-text:`) describe."""
    made = parse("synthetic-text", arguments, SentenceOptions)
    for key, least in (("characters", 1), ("seed", -1)):
        if getattr(made, key) < least:
            raise UserError(f"synthetic-text: {key} is {getattr(made, key)}", hint=f"give {max(least, 0)} or more")
    needed = made.characters * MEMORY_A_CHARACTER
    check_memory(f"synthetic-text: {made.characters:,} characters", needed, "ask for fewer characters")
    text = sentences(made.characters, options.seed if made.seed < 0 else made.seed)
    name = f"synthetic-text:{arguments}" if arguments else "synthetic-text"
    return windows(name, text, TextOptions(made.context, made.test))


def sentences(characters: int, seed: int) -> str:
    """That many characters of text. A longer text of the same seed begins with the shorter one."""
    rng = generator(seed, "synthetic", _STREAM)
    pieces: list[str] = []
    length = 0
    while length < characters:
        end = "\n" if len(pieces) % _SENTENCES_A_PARAGRAPH == _SENTENCES_A_PARAGRAPH - 1 else " "
        pieces.append(_sentence(rng) + end)
        length += len(pieces[-1])
    return "".join(pieces)[:characters]


def _sentence(rng: np.random.Generator) -> str:
    said = _clause(rng)
    if rng.integers(3) == 0:
        said = f"{said}, {_pick(rng, LINKS)} {_clause(rng)}"
    return said[0].upper() + said[1:] + "."


def _clause(rng: np.random.Generator) -> str:
    plural, past = rng.integers(2) == 0, rng.integers(2) == 0
    verb = _pick(rng, VERBS)
    if past:
        verb = PASTS.get(verb, verb + "ed")
    elif not plural:
        verb += "es" if verb.endswith("ch") else "s"
    words = [_someone(rng, plural), verb, _someone(rng, plural=rng.integers(2) == 0)]
    if rng.integers(2) == 0:
        words.append(_pick(rng, PLACES))
    if rng.integers(3) == 0:
        words.append(_pick(rng, TIMES))
    return " ".join(words)


def _someone(rng: np.random.Generator, plural: bool) -> str:
    noun = _pick(rng, NOUNS)
    described = f"{_pick(rng, ADJECTIVES)} " if rng.integers(2) == 0 else ""
    if plural:
        return f"the {described}{PLURALS.get(noun, noun + 's')}"
    said = described + noun
    if rng.integers(2) == 0:
        return f"the {said}"
    return f"an {said}" if said[0] in "aeiou" else f"a {said}"


def _pick(rng: np.random.Generator, words: list[str]) -> str:
    return words[rng.integers(len(words))]
