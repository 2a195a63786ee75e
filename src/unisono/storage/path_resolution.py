"""Located: files that a recipe names by a relative path, found again when a run is resumed from another directory.

The one idea: a snapshot knows the directory in which its run was started. A file that is not here is looked for there,
and code and data that are not there either are looked for in the run directory, where a user may have put them for
others; one that is here is taken from here, as always. The data, and the code of a model, are compared with those of
the snapshot either way.

    recipe = resolve_paths(recipe, "/home/me/project")            # data="rows.npz" -> "/home/me/project/rows.npz"
"""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from unisono.data.sources import ABOUT
from unisono.files import expand_user
from unisono.recipe import Recipe
from unisono.user_code.source_files import file_in


def here() -> str:
    """The working directory; empty if it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def resolve_paths(recipe: Recipe, directory: str, names: Collection[str] = ()) -> Recipe:
    """With the paths of files that are not here but in `directory`; empty: nobody knows where they were. names: of the
    options that are looked at; all of `FILES` if there are none."""
    changed: dict[str, Any] = {}
    for name in names or FILES:
        value, other = recipe.option(name), inside(name, recipe.option(name), directory)
        if value != other and not _exists(name, value) and _exists(name, other):
            changed[name] = other
    return recipe.with_options(**changed)


def inside(name: str, value: str, directory: str) -> str:
    """The option with its file in `directory`, if it names one by a relative path."""
    file = FILES[name](value)
    if not file or not directory or expand_user(file).is_absolute():
        return value
    return f"{Path(directory) / file}{value[len(file) :]}"


def _exists(name: str, value: str) -> bool:
    return os.path.exists(FILES[name](value))  # False for names that no file system takes


def _data(value: str) -> str:
    if value.partition(":")[0] in ABOUT:
        return ""
    if ".txt:" in value:
        return value[: value.index(".txt:") + len(".txt")]
    return file_in(value) or value


def _order(value: str) -> str:
    return "" if value in ("free", "round-robin") else value


FILES: dict[str, Callable[[str], str]] = {"model": file_in, "data": _data, "data_dir": str, "order": _order}
"""Options that may name a file, and how it is found in them: always at their beginning."""
CARRIED = ("model", "data")
"""Those whose files may lie in the run directory. (An order may not: a run writes one of its own there.)"""
