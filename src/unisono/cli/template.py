"""`unisono train --write-recipe`: a recipe file to edit, with every option, what it means, and its default.

    unisono train r2 --epochs 10 --write-recipe mine.toml; unisono train mine.toml

The one idea: what was given stands as it is, everything else as a comment with its default, so the file says what is
special about a run, and what else there is. It is made of the recipe's fields: nothing can be forgotten.
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, fields

from unisono.errors import UserError
from unisono.files import create_file, expand_user
from unisono.recipe import Recipe

WIDTH = 100
OF_ONE_RUN = ("out", "resume", "allow_change")
"""Options that are no part of a recipe: given on the command line."""


def template(recipe: Recipe, groups: Mapping[str, str], help_of: Mapping[str, str]) -> str:
    """A TOML file. groups: titles, by the option that each begins with; help_of: what options mean."""
    lines = ["# A recipe for unisono: remove the # before what you want to change, then run", "#"]
    lines += ["#     unisono train THIS-FILE.toml          # options given there go before what stands here"]
    given, default = asdict(recipe), asdict(Recipe())
    for entry in fields(Recipe):
        if entry.name in OF_ONE_RUN:
            continue
        if entry.name in groups:
            lines += ["", "", f"# ---- {groups[entry.name]} ----"]
        told = " ".join(help_of[entry.name].split())  # its lines were broken for another width
        lines += ["", *textwrap.wrap(told, WIDTH, initial_indent="# ", subsequent_indent="# ")]
        value = f"{entry.name} = {json.dumps(given[entry.name])}"
        lines.append(value if given[entry.name] != default[entry.name] else f"# {value}")
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
