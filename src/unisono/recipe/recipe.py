"""Recipe: everything that decides the result of a run, in groups; its options by flat name; a TOML file to edit.

The one idea: however a run is started, a `Recipe` comes out, and it is written to the run directory. Code reads it by
groups; options are given by their flat names, which are those of the command line. The table `OPTIONS` (where each
option lives, its type, its default) is derived from the groups, so an option is defined once; code that deals with all
options (the command line, TOML files, records, studies) uses it.

    recipe = Recipe.from_options(model="mlp:64", ranks=4, lr=0.1)
    recipe.learning.lr, recipe.ranks.count                          # 0.1, 4
    recipe.with_options(ranks=2).save(path)                         # `reading.py` reads it back
    OPTIONS["ranks"].group, OPTIONS["ranks"].field                  # "ranks", "count"

`template` is the file of `unisono train --write-recipe`: the options that were given as they are, all others as
comments with their defaults and their help.

    unisono train r2 --epochs 10 --write-recipe mine.toml; unisono train mine.toml
"""

import inspect
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, final, get_args

import tomli_w

from unisono.errors import UserError, unknown_name
from unisono.files import create_file, expand_user, write_file
from unisono.recipe.option_groups import Data, Faults, Learning, Model, Output, Ranks, Strategy

GROUPS: Mapping[str, type] = {
    "model": Model, "data": Data, "ranks": Ranks, "learning": Learning, "strategy": Strategy, "faults": Faults,
    "output": Output,
}  # fmt: skip
"""The groups by the name of their field in `Recipe`, which is that of the table in a TOML file."""
RUN_ONLY_OPTIONS = ("out", "resume", "allow_change")
"""Options that belong to one run only: given on the command line, not written to recipes."""
MOST = 2**64


@final
@dataclass(frozen=True)
class Option:
    """Where an option lives."""

    name: str
    """On the command line, with - for _."""
    group: str
    field: str
    """Within the group, and in the group's table of a TOML file."""
    type: Any
    """As declared: int | str."""
    default: Any

    @property
    def kinds(self) -> tuple[type, ...]:
        """The types that its value may have."""
        return get_args(self.type) or (self.type,)


def _declared() -> dict[str, Option]:
    found = {}
    for group, declared in GROUPS.items():
        for entry in fields(declared):
            name = entry.metadata.get("option") or entry.name
            found[name] = Option(name, group, entry.name, entry.type, entry.default)
    return found


OPTIONS: Mapping[str, Option] = _declared()


def fields_of(group: str) -> dict[str, str]:
    """The options of a group, by their names within it."""
    return {option.field: option.name for option in OPTIONS.values() if option.group == group}


def title_of(group: str) -> str:
    """The heading of a group's options."""
    return (inspect.getdoc(GROUPS[group]) or group).removesuffix(".")


@cache
def help_of_options() -> Mapping[str, str]:
    """What each option means."""
    import docstring_parser

    return {
        fields_of(group)[entry.arg_name]: entry.description or ""
        for group, declared in GROUPS.items()
        for entry in docstring_parser.parse_from_object(declared).params
    }


def checked_value(name: str, value: Any, source: str) -> Any:
    """The value of an option, a whole number as a float where one is wanted; a `UserError` for an unknown option or a
    value of another type. source: where it was given."""
    if name not in OPTIONS:
        raise unknown_name(f"key in {source}:", name, OPTIONS)
    if isinstance(value, str) and not _could_name_file(value):
        raise UserError(f"{name} in {source} is {value!r}", hint="leave zero bytes and half characters out")
    if isinstance(value, int) and abs(value) >= MOST:
        raise UserError(f"{name} in {source} is a number of more than 64 bits", hint="give a smaller one")
    kinds = OPTIONS[name].kinds
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise UserError(f"{name} in {source} is {value!r}", hint=f"give a value of type {wanted}")
    return value


def _could_name_file(text: str) -> bool:
    """Most texts of a recipe name a file, or could."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # a half of a surrogate pair
        return False


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to train, on what, how."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    ranks: Ranks = field(default_factory=Ranks)
    learning: Learning = field(default_factory=Learning)
    strategy: Strategy = field(default_factory=Strategy)
    faults: Faults = field(default_factory=Faults)
    output: Output = field(default_factory=Output)

    def __post_init__(self) -> None:
        for name, kind in GROUPS.items():
            if not isinstance(getattr(self, name), kind):
                raise UserError(
                    f"Recipe({name}={getattr(self, name)!r})",
                    hint=f"give a {kind.__name__}, or the option: Recipe.from_options({name}=...)",
                )

    @classmethod
    def from_options(cls, **options: Any) -> "Recipe":
        """A recipe from flat options, such as lr=0.1; the others have their defaults."""
        return cls().with_options(**options)

    def with_options(self, **options: Any) -> "Recipe":
        """The recipe with other values of these flat options."""
        return self.with_values(options, "the options")

    def with_values(self, values: dict[str, Any], source: str) -> "Recipe":
        """As `with_options`; source: where the values come from, for the message if one is wrong."""
        changed: dict[str, dict[str, Any]] = {}
        for name, given in values.items():
            value, option = checked_value(name, given, source), OPTIONS[name]
            changed.setdefault(option.group, {})[option.field] = value
        groups = {name: replace(getattr(self, name), **entries) for name, entries in changed.items()}
        return replace(self, **groups)

    def options(self) -> dict[str, Any]:
        """All values by their flat names."""
        return {name: self.option(name) for name in OPTIONS}

    def option(self, name: str) -> Any:
        """The value of the flat option `name`."""
        place = OPTIONS[name]
        return getattr(getattr(self, place.group), place.field)

    def save(self, path: Path, *, within: Path | None = None) -> None:
        """Whole or not at all. within: see `write_file`."""
        write_file(path, self.toml(), within=within)

    def toml(self) -> str:
        """As TOML, a table for each group; without what belongs to one run only, so that others can be made from it."""
        tables: dict[str, dict[str, Any]] = {name: {} for name in GROUPS}
        for option in OPTIONS.values():
            if option.name not in RUN_ONLY_OPTIONS:
                tables[option.group][option.field] = self.option(option.name)
        return tomli_w.dumps(tables)


WIDTH = 100


def template(recipe: Recipe) -> str:
    """A TOML file, with a table for each group."""
    lines = ["# A recipe for unisono: remove the # before what you want to change, then run", "#"]
    lines += ["#     unisono train THIS-FILE.toml          # options given there override this file"]
    for group in GROUPS:
        lines += ["", "", f"# ---- {title_of(group)} ----", f"[{group}]"]
        for option in OPTIONS.values():
            if option.group == group and option.name not in RUN_ONLY_OPTIONS:
                text = " ".join(help_of_options()[option.name].split())  # its lines were broken for another width
                lines += ["", *textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")]
                given = recipe.option(option.name)
                value = tomli_w.dumps({option.field: given}).strip()
                lines.append(value if given != option.default else f"# {value}")
    return "\n".join(lines) + "\n"


def write_template(path: str, text: str) -> None:
    """Makes the file; never over another."""
    target = expand_user(path)
    try:
        create_file(target, text)
    except FileExistsError:
        raise UserError(f"--write-recipe {path} exists", hint="give another name, or remove it") from None
    except OSError as error:
        raise UserError(f"--write-recipe {path}: {error.strerror}", hint="give a place that you may write to") from None
