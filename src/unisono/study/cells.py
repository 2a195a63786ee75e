"""Cell: one point of a study, a recipe with what tells it from the others.

    cells = cells_of(recipe, [over("strategy=sync,ddp"), over("ranks=1,2")])       # four of them

The one idea: whatever a study varies is an option of the recipe, so a cell is a recipe and its labels. Options that
belong together vary together (`strategy+ranks=sync+1,async+4`), several variations make up their product.

Limits: a value that has a comma in it (mlp:128,64) needs `|` between the values: model=mlp:128,64|mlp:32.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from unisono.errors import UserError, unknown_name
from unisono.recipe import OPTIONS, Recipe
from unisono.recipe.reading import ALIASES, from_values

NOT_VARIED = ("out", "resume", "allow_change")
"""Options that belong to one run, not to what is run."""


@final
@dataclass(frozen=True)
class Cell:
    """What is run, and what distinguishes it."""

    labels: Mapping[str, str]
    """Of each varied option its value, in the order in which they were given."""
    recipe: Recipe
    nodes: int = 1
    """Machines that its ranks are spread over."""

    @property
    def name(self) -> str:
        """strategy=ddp ranks=2."""
        return " ".join(f"{option}={value}" for option, value in self.labels.items()) or "the recipe"

    @property
    def digest(self) -> str:
        """Equal for equal recipes on as many machines only."""
        return digest_of(values_of(self.recipe) | ({"nodes": self.nodes} if self.nodes > 1 else {}))

    @property
    def slug(self) -> str:
        """As the name of a file; different for cells that differ."""
        words = re.sub(r"[^A-Za-z0-9.=]+", "-", self.name).strip("-.")
        return f"{words[:60]}-{self.digest[:6]}"


def values_of(recipe: Recipe) -> dict[str, Any]:
    """All that decides what is run."""
    return {name: value for name, value in recipe.options().items() if name not in NOT_VARIED}


def digest_of(values: Mapping[str, Any]) -> str:
    """Of plain values, in any order."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@final
@dataclass(frozen=True)
class Over:
    """One variation: options that vary together, and the values that they take."""

    options: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    """Each as long as `options`."""


def over(text: str) -> Over:
    """'ranks=1,2' or 'strategy+ranks=sync+1,async+4'; a `UserError` for what is no option."""
    left, equals, right = text.partition("=")
    options = [ALIASES.get(word, word) for word in (part.strip().replace("-", "_") for part in left.split("+"))]
    known = [name for name in OPTIONS if name not in NOT_VARIED]
    if not equals or not right.strip():
        raise UserError(f"--over {text}: there are no values", hint="for example --over strategy=sync,ddp")
    for option in options:
        if option not in known:
            raise unknown_name("option in --over:", option, known)
    if len(set(options)) < len(options):
        raise UserError(f"--over {text}: an option is there twice", hint="give it once, with all its values")
    values = []
    for word in dict.fromkeys(part.strip() for part in right.split("|" if "|" in right else ",")):
        split = tuple(part.strip() for part in word.split("+")) if len(options) > 1 else (word,)
        if len(split) != len(options):
            raise UserError(
                f"--over {text}: {word!r} is {len(split)} values for {len(options)} options",
                hint="give one for each, joined by +, such as strategy+ranks=sync+1,async+4",
            )
        values.append(split)
    return Over(tuple(options), tuple(values))


def cells_of(recipe: Recipe, overs: Sequence[Over]) -> list[Cell]:
    """The product of all variations, the last one varying fastest; of those that mean the same (lr=0.1,0.10) the first.
    A `UserError` for values that are none."""
    varied = [option for entry in overs for option in entry.options]
    if twice := [option for option in varied if varied.count(option) > 1]:
        raise UserError(f"--over names {twice[0]} twice", hint="give it once, with all its values")
    cells = []
    for chosen in itertools.product(*(entry.values for entry in overs)):
        labels = dict(zip(varied, itertools.chain.from_iterable(chosen), strict=True))
        cells.append(Cell(labels, varied_recipe(recipe, labels)))
    unique: dict[str, Cell] = {}
    for cell in cells:
        unique.setdefault(cell.digest, cell)
    return list(unique.values())


def varied_recipe(recipe: Recipe, labels: Mapping[str, str]) -> Recipe:
    """The recipe with these values, given as texts."""
    values = values_of(recipe)
    if "batch_size" in labels and "batch_size_per_rank" not in labels:
        values["batch_size_per_rank"] = 0  # which would go before it
    return from_values(values | {option: typed(option, text) for option, text in labels.items()}, "--over")


def typed(option: str, text: str) -> Any:
    """A text as a value of the option's type; one that fits none stays, to be refused by name."""
    kinds = OPTIONS[option].kinds
    if bool in kinds and text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                continue
    return text
