"""Provenance of a study: its recipes, the user's own code, files of data, versions, the command and the machine.

    studied = {"cells": {cell.name: cell.digest for cell in cells}, **inputs_of([cell.recipe for cell in cells])}
    write_about(Path("studies/mine"), [cell.recipe for cell in cells])

The one idea: a recipe names files, and files change. A study that goes on after that would compare runs of different
things, so the state of the files is part of what is studied: code by its contents, with the modules beside it that it
imports (`user_code/source_files.py`), data by size and time of change. about.json lies beside the numbers of a study,
so that a page of it can be read a year later: the command as it was typed, the options on which all recipes agree, and
the names of those that the study varies.

Limits: a file that changes while a study runs is not noticed; of a directory of data the files in it and in its
subdirectories count, no deeper. Paths in the command are as they were given, seen from where it was given.
"""

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unisono import __version__
from unisono.files import expand_user, write_file
from unisono.recipe import RUN_ONLY_OPTIONS, Recipe
from unisono.resources import machine
from unisono.training.fingerprint import libraries_of
from unisono.user_code.source_files import files_of

COMPUTING = ("numpy", "torch")
"""Packages whose version decides bits and times."""
ABOUT = "about.json"


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


def command_line() -> str:
    """What was typed, as one line for a shell."""
    return shlex.join(["unisono", *sys.argv[1:]]).replace("\n", " ")


def write_about(path: Path, recipes: Sequence[Recipe], *, here: bool = True) -> None:
    """In the directory of a study, which exists. here: it runs on this machine, not where a batch system says."""
    values = [recipe.options() for recipe in recipes]
    names = [name for name in (values[0] if values else {}) if name not in RUN_ONLY_OPTIONS]
    common = {name: values[0][name] for name in names if all(one[name] == values[0][name] for one in values)}
    about = {
        "command": command_line(),
        "version": __version__,
        "recipe": common,
        "varied": [name for name in names if name not in common],
        "machine": machine(*libraries_of(recipes)) if here else {},
    }
    write_file(path / ABOUT, json.dumps(about, indent=1) + "\n")
