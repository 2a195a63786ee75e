"""Reading recipes: from shipped names, TOML files, the command line and records, with one message for what is wrong.

The one idea: wherever values come from, they are plain ones by their options' names (or other names of these), and are
looked at in one place: unknown keys and wrong types are refused by name.

    load("r2", {"epochs": 3}); load("mine.toml", {}); from_values({"lr": 0.1}, "mine.json")
"""

import os
from dataclasses import fields, replace
from importlib import resources
from typing import Any, get_args

from unisono.errors import UserError, unknown_name
from unisono.files import read_file
from unisono.parsing import MOST_TOML_BYTES, parse_toml
from unisono.recipe import Recipe, option

ALIASES = {"base_lr": "lr", "num_gpus": "ranks"}
"""Other names of options, as other trainers have them: on the command line and in TOML files."""
MOST = 2**64
_BATCHES = ("batch_size", "batch_size_per_rank")


def shipped() -> list[str]:
    """The names of the recipes that come with the package."""
    folder = resources.files("unisono") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(source: str, overrides: dict[str, Any]) -> Recipe:
    """The recipe of a shipped name or a TOML file (none: the defaults), with `overrides` on top."""
    return changed(_plain(_read(source), source) if source else {}, overrides, source or "the command line")


def changed(values: dict[str, Any], overrides: dict[str, Any], source: str) -> Recipe:
    """The recipe of plain values, which `source` gave, with `overrides` on top."""
    overrides = _plain(overrides, "the command line")
    if all(overrides.get(name) for name in _BATCHES):
        raise UserError(
            f"both {' and '.join(map(option, _BATCHES))}", hint="give one: the batch of all ranks together, or of each"
        )
    if "batch_size" in overrides:
        values.pop("batch_size_per_rank", None)  # which would go before it
    return from_values({**values, **overrides}, source)


def from_values(values: dict[str, Any], source: str) -> Recipe:
    """A recipe from plain values; unknown keys and wrong types are refused by name."""
    known = {field.name: field for field in fields(Recipe)}
    for name, value in values.items():
        if isinstance(value, dict):
            raise UserError(
                f"{source} has a table [{name}]", hint="write the options one below the other, without tables"
            )
        if name not in known:
            raise unknown_name(f"key in {source}:", name, known)
        if isinstance(value, str) and not _is_name(value):
            raise UserError(f"{name} in {source} is {value!r}", hint="leave zero bytes and half characters out")
        if isinstance(value, int) and abs(value) >= MOST:
            raise UserError(f"{name} in {source} is a number of more than 64 bits", hint="give a smaller one")
        kinds = get_args(known[name].type) or (known[name].type,)
        if float in kinds and isinstance(value, int) and not isinstance(value, bool):
            values[name] = float(value)
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise UserError(f"{name} in {source} is {value!r}", hint=f"give a value of type {wanted}")
    return replace(Recipe(), **values)


def _is_name(text: str) -> bool:
    """Whether it could be the name of a file: most texts of a recipe are, or hold one."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # a half of a surrogate pair
        return False


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
        raise UserError(f"recipe {source!r} is not TOML: {error}", hint='lines look like: model = "mlp:64"') from None
