"""`unisono train --write-recipe`: a recipe file to edit, with every option, what it means, and its default.

    unisono train r2 --epochs 10 --write-recipe mine.toml; unisono train mine.toml

The one idea: what was given stands as it is, everything else as a comment with its default, so the file says what is
special about a run, and what else there is. It is made of the recipe's groups: nothing can be forgotten.
"""

import textwrap

import tomli_w

from unisono.errors import UserError
from unisono.files import create_file, expand_user
from unisono.recipe.options import GROUPS, OPTIONS, RUN_ONLY_OPTIONS, help_of_options, title_of
from unisono.recipe.recipe import Recipe

WIDTH = 100


def template(recipe: Recipe) -> str:
    """A TOML file, with a table for each group."""
    lines = ["# A recipe for unisono: remove the # before what you want to change, then run", "#"]
    lines += ["#     unisono train THIS-FILE.toml          # options given there go before what stands here"]
    for group in GROUPS:
        lines += ["", "", f"# ---- {title_of(group)} ----", f"[{group}]"]
        for option in OPTIONS.values():
            if option.group == group and option.name not in RUN_ONLY_OPTIONS:
                told = " ".join(help_of_options()[option.name].split())  # its lines were broken for another width
                lines += ["", *textwrap.wrap(told, WIDTH, initial_indent="# ", subsequent_indent="# ")]
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
