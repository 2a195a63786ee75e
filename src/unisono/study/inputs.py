"""What a study's runs are made of besides their recipes: the user's own code, files of data, the programs that compute.

    studied = {"cells": {cell.name: cell.digest for cell in cells}, **inputs_of([cell.recipe for cell in cells])}

The one idea: a recipe names files, and files change. A study that goes on after that would compare runs of different
things, so what the files were is part of what is studied: code by its contents, with the modules beside it that it
imports (`user_code/source_files.py`), data by size and time of change.

Limits: a file that changes while a study runs is not looked at; of a directory of data the files in it and in its
subdirectories count, no deeper.
"""

import hashlib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unisono import __version__
from unisono.files import expand_user
from unisono.recipe import Recipe
from unisono.user_code.source_files import files_of

COMPUTING = ("numpy", "torch")
"""Packages whose version decides bits and times."""


def inputs_of(recipes: Iterable[Recipe]) -> dict[str, Any]:
    """made_with: versions; files: of every file that a recipe names, what it was. Plain values, in a fixed order."""
    versions = {"unisono": __version__} | {name: _version(name) for name in COMPUTING}
    specs = {
        spec
        for recipe in recipes
        for spec in (recipe.model.name, recipe.data.name, recipe.data.directory, recipe.strategy.order)
    }
    return {"made_with": versions, "files": {str(path): _state(path) for path in sorted(set(_named(specs)))}}


def _version(package: str) -> str | None:
    try:
        return version(package)  # without importing it, which takes seconds
    except PackageNotFoundError:
        return None


def _named(specs: Iterable[str]) -> Iterator[Path]:
    """The files among them: mine.py:net, corpus.txt:context=64, a directory."""
    for spec in specs:
        for text in dict.fromkeys([spec, spec.rpartition(":")[0], spec.partition(":")[0]]):
            path = expand_user(text)
            if not text or not path.exists():
                continue
            if path.is_file():
                yield from files_of(path) if path.suffix == ".py" else [path]
            else:
                yield from (one for one in _inside(path) if one.is_file())
            break


def _inside(folder: Path) -> Iterator[Path]:
    yield from folder.glob("[!.]*")
    yield from folder.glob("[!.]*/[!.]*")


def _state(path: Path) -> str:
    if path.suffix == ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    found = path.stat()
    return f"{found.st_size} bytes, changed {found.st_mtime_ns}"
