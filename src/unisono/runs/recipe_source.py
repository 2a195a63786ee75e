"""Where a run's recipe comes from: a `Recipe`, a file, a shipped name, a run that is resumed, or options alone.

    recipe, trust = read_recipe("r2", {"epochs": 3}, "the command line")

Limits: imports nothing heavy, unless a run is resumed.
"""

from os import PathLike, fspath
from typing import Any

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.recipe.reading import changed, load
from unisono.trust import CODE, Trust


def read_recipe(
    source: Recipe | str | PathLike[str] | None, overrides: dict[str, Any], given: str, *, trusted: bool = False
) -> tuple[Recipe, Trust]:
    """The recipe of `source` with `overrides` on top, and which of its code may run. given: what to call the overrides
    in messages."""
    if isinstance(source, Recipe):
        found = changed(source.options(), overrides, given)
        return found, Trust.of(found, CODE, "", trusted=trusted)
    if source is not None and not isinstance(source, str | PathLike):
        raise UserError(
            f"the recipe is {source!r}", hint="give a Recipe, the path of a TOML file, or options by their names"
        )
    name = "" if source is None else fspath(source)
    if "resume" in overrides and not name:
        from unisono.storage.resume import named_in, recipe_of  # reads snapshots, so it needs NumPy

        found, name = recipe_of(overrides["resume"], overrides), named_in(overrides["resume"])
    else:
        found = load(name, overrides) if name else changed({}, overrides, given)
    return found, Trust.of(found, overrides, name, trusted=trusted)
