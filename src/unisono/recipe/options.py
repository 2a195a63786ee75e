"""Options of a recipe by their flat names, those of the command line: where each lives, its type, its default.

The one idea: this table is derived from the groups. Whatever deals with all options (the command line, TOML files,
records, studies) looks here, and the groups stay the only definition.

    OPTIONS["ranks"].group, OPTIONS["ranks"].field                  # "ranks", "count"
"""

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, final, get_args

from unisono.errors import UserError, unknown_name
from unisono.recipe.groups import Data, Faults, Learning, Model, Output, Ranks, Strategy

GROUPS: Mapping[str, type] = {
    "model": Model, "data": Data, "ranks": Ranks, "learning": Learning, "strategy": Strategy, "faults": Faults,
    "output": Output,
}  # fmt: skip
"""By the name of the field of `Recipe`, which is that of the table in a TOML file."""
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
