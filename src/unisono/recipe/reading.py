"""Reading recipes: from shipped names, TOML files, the command line and records, with one message for what is wrong.

The one idea: wherever values come from, they become plain values by the flat names of their options, and are checked in
one place: unknown keys and wrong types are refused by name. A TOML file has a table for each group; flat keys, as
earlier versions wrote them, are read as well.

    load("r2", {"epochs": 3}); load("mine.toml", {}); from_values({"lr": 0.1}, "mine.json")
"""

from importlib import resources
from typing import Any

from unisono.errors import UserError, unknown_name
from unisono.files import read_file
from unisono.parsing import MOST_TOML_BYTES, parse_toml
from unisono.recipe.option_groups import flag
from unisono.recipe.recipe import GROUPS, Recipe, fields_of

ALIASES = {"base_lr": "lr", "num_gpus": "ranks"}
"""Other names of options, as other trainers have them: on the command line and in TOML files."""
_BATCHES = ("batch_size", "batch_size_per_rank")


def shipped() -> list[str]:
    """The names of the recipes that come with the package."""
    folder = resources.files("unisono") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(source: str, overrides: dict[str, Any]) -> Recipe:
    """The recipe of a shipped name or a TOML file (none: the defaults), with `overrides` on top."""
    values = _plain(_checked_flat(_read(source), source), source) if source else {}
    return changed(values, overrides, source or "the command line")


def changed(values: dict[str, Any], overrides: dict[str, Any], source: str) -> Recipe:
    """The recipe of plain values, which `source` gave, with `overrides` on top."""
    overrides = _plain(overrides, "the command line")
    if all(overrides.get(name) for name in _BATCHES):
        raise UserError(
            f"both {' and '.join(map(flag, _BATCHES))}", hint="give one: the batch of all ranks together, or of each"
        )
    if "batch_size" in overrides:
        values.pop("batch_size_per_rank", None)  # which would go before it
    return from_values({**values, **overrides}, source)


def from_values(values: dict[str, Any], source: str) -> Recipe:
    """A recipe from plain values; unknown keys and wrong types are refused by name."""
    return Recipe().with_values(values, source)


def flat_options(values: dict[str, Any]) -> dict[str, Any]:
    """What a recipe's TOML file says, by the flat names of options. Unknown keys stay, as `table.key`; the first of two
    values counts. For readers that do not believe the file."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in GROUPS and isinstance(value, dict):
            for key, entry in value.items():
                found.setdefault(_name_in(name, key) or f"{name}.{key}", entry)
        else:
            found.setdefault(name, value)
    return found


def _checked_flat(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same; unknown tables and keys, and options that are there twice, are refused."""
    for name, value in values.items():
        if not isinstance(value, dict):
            continue
        if name not in GROUPS:
            raise unknown_name(f"table in {source}:", f"[{name}]", [f"[{group}]" for group in GROUPS])
        for key in value:
            option = _name_in(name, key)
            if not option:
                raise unknown_name(f"key in [{name}] of {source}:", key, fields_of(name))
            if option in values and not isinstance(values[option], dict):
                raise UserError(f"{source} has {option}, and {key} in [{name}], which is the same", hint="give one")
    return flat_options(values)


def _name_in(group: str, key: str) -> str:
    """The option that a key of a group's table is, or another name of it; empty: none."""
    if ALIASES.get(key) in fields_of(group).values():
        return key
    return fields_of(group).get(key, "")


def _plain(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The values by their options' own names."""
    for alias in sorted(ALIASES.keys() & values):
        if (name := ALIASES[alias]) in values:
            raise UserError(f"{source} has both {name} and {alias}, which is another name of it", hint="give one")
    return {ALIASES.get(name, name): value for name, value in values.items()}


def _read(source: str) -> dict[str, Any]:
    if source in shipped():
        text = (resources.files("unisono") / "recipes" / f"{source}.toml").read_bytes()
    else:
        try:
            text = read_file(source, MOST_TOML_BYTES)
        except OSError as error:
            raise UserError(
                f"recipe {source!r}: {error.strerror}; shipped recipes: {', '.join(shipped())}",
                hint="give one of these names, or the path of a TOML file",
            ) from None
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UserError(f"recipe {source!r} is not TOML: {error}", hint="lines look like: lr = 0.1") from None
