"""about.json: how a study came about: the command, the recipe that its runs have in common, the machine.

    write_about(Path("studies/mine"), [cell.recipe for cell in cells])

The one idea: a page of a study can be read a year later, so what it was made of lies beside its numbers, as it does for
a run. The command is what was typed; of the recipes of all runs, options on which they agree are the recipe, and the
others are what the study varies.

Limits: paths in the command are as they were given, seen from where it was given.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from unisono import __version__
from unisono.files import write_file
from unisono.recipe import RUN_ONLY_OPTIONS, Recipe
from unisono.resources import machine
from unisono.training.fingerprint import libraries_of

ABOUT = "about.json"


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
