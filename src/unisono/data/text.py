"""Text for language models: characters become numbers, the text becomes windows of one length.

The one idea: the vocabulary is the sorted characters of the text, so the file alone decides what each number means.
Windows do not overlap, and the target of each character is the one that follows it.

    load_text("corpus.txt:context=128,test=0.05")                              # --data corpus.txt:context=128,test=0.05
    load_sentences("characters=50000,context=64,test=0.1,seed=3", options)     # --data synthetic-text:characters=50000

`context` is the length of a window (64), `test` the share of the text, from its end, that is the test part (0.1; 0: no
test part). Characters that do not fill a window at the end of a part are left out.

synthetic-text needs no corpus. Its sentences follow a small grammar (singular or plural, present or past, who does what
where), so a model can learn something at every length, from letters to agreement. Words are drawn from a keyed stream:
equal options and seed give equal text on any machine. `seed` defaults to that of the run.

Limits: a file must be regular and UTF-8, and is read whole; each character takes 16 bytes of memory as numbers.
Characters that occur only in the test part are in the vocabulary, too. synthetic-text has some 110 words, and its best
possible loss is far below that of real text.
"""

import os
from dataclasses import dataclass, fields
from typing import Any, TypeVar, final

import numpy as np

from unisono.data.dataset import DataOptions, Raw
from unisono.errors import UserError, unknown_name
from unisono.files import expand_user, open_file
from unisono.resources import check_memory
from unisono.rng import generator

_Options = TypeVar("_Options")


_MOST_DIGITS = 40
MEMORY_A_CHARACTER = 48
"""Bytes, while windows are made: the text, its numbers, and windows of them."""


@final
@dataclass(frozen=True)
class TextOptions:
    """What stands after `corpus.txt:`."""

    context: int = 64
    test: float = 0.1


def load_text(spec: str) -> Raw:
    """The windows of the file that `spec`, "path.txt" or "path.txt:context=64", names."""
    stem, _, rest = spec.rpartition(".txt")
    path = expand_user(f"{stem}.txt")
    options = parse(path.name, rest.removeprefix(":"), TextOptions)
    try:
        with open_file(path) as file:
            nbytes = os.fstat(file.fileno()).st_size
            check_memory(f"{path}: {nbytes:,} bytes of text", nbytes * MEMORY_A_CHARACTER, "give a shorter text")
            text = file.read().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", hint="is the path right, seen from here?") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start} is not UTF-8 ({error.reason})",
            hint=f"convert the file: iconv -f LATIN1 -t UTF-8 {path.name}",
        ) from None
    return windows(spec, text, options)


def vocabulary(text: str) -> str:
    """The characters of a text, each once; a character's place is its number.

    >>> vocabulary("hello")
    'ehlo'
    """
    return "".join(sorted(set(text)))


def windows(name: str, text: str, options: TextOptions) -> Raw:
    """Training and test windows: x (rows, context) int64, y the same shifted by one.

    >>> raw = windows("hello", "hello hello", TextOptions(context=3, test=0))
    >>> raw.arrays["train_x"].tolist(), raw.arrays["train_y"].tolist()
    ([[2, 1, 3], [3, 4, 0], [2, 1, 3]], [[1, 3, 3], [4, 0, 2], [1, 3, 3]])
    """
    if options.context < 1:
        raise UserError(f"{name}: context is {options.context}", hint="give 1 or more")
    if not 0 <= options.test < 1:
        raise UserError(f"{name}: test is {options.test:g}", hint="give a share from 0 to below 1, as 0.1")
    characters = vocabulary(text)
    if len(characters) < 2:
        raise UserError(
            f"{name}: the text is {len(text)} characters long and has {len(characters)} different ones",
            hint="give a text with at least two different characters",
        )
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    known = np.frombuffer(characters.encode("utf-32-le"), "<u4")
    tokens = np.searchsorted(known, codes)
    start = len(tokens) - round(len(tokens) * options.test)
    arrays: dict[str, np.ndarray] = {}
    arrays["train_x"], arrays["train_y"] = _cut(name, "training", tokens[:start], options.context)
    if options.test:
        arrays["test_x"], arrays["test_y"] = _cut(name, "test", tokens[start:], options.context)
    return Raw(name, arrays, len(characters), tokens=True, vocabulary=characters)


def parse(name: str, arguments: str, kind: type[_Options]) -> _Options:
    """'context=64,test=0.1' -> a dataclass of numbers; a `UserError` for what is not understood.

    >>> parse("corpus.txt", "context=32", TextOptions).context
    32
    """
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    given: dict[str, int | float] = {}
    for word in filter(None, (word.strip() for word in arguments.split(","))):
        key, _, text = (piece.strip() for piece in word.partition("="))
        if key not in types:
            raise unknown_name(f"option of {name}:", key, types)
        try:
            given[key] = number_of(types[key], text)
        except ValueError as error:
            raise UserError(f"{name}: {word[:80]}: {error}", hint=f"for example {key}={getattr(kind(), key)}") from None
    return kind(**given)


def number_of(kind: type, text: str) -> Any:
    """An option's value; a `ValueError` with a plain reason for what is no such number, or one of too many digits."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:_MOST_DIGITS]!r}... is longer than {_MOST_DIGITS} characters")
    try:
        return kind(text)
    except ValueError:
        what = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise ValueError(f"{text!r} is not {what}") from None


def _cut(name: str, part: str, tokens: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    rows = (len(tokens) - 1) // context
    if rows < 1:
        raise UserError(
            f"{name}: the {part} part has {len(tokens)} characters, a window needs {context + 1}",
            hint="give a longer text, a smaller context=, or another test= (0: no test part)",
        )
    x, y = tokens[: rows * context], tokens[1 : rows * context + 1]
    return x.reshape(rows, context).astype(np.int64), y.reshape(rows, context).astype(np.int64)


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
