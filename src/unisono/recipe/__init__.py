"""Recipe: everything that decides the result of a run, in groups.

groups.py     the options, each defined once, with its help text
options.py    the same by their flat names: where each lives, its type, its default
recipe.py     `Recipe`: the groups together
reading.py    a recipe from a shipped name, a TOML file, the command line or records
template.py   a TOML file with every option, explained
"""

from unisono.recipe.groups import (
    DEFAULT_SHARDS,
    MOST_THREADS,
    Data,
    Faults,
    Learning,
    Model,
    Output,
    Ranks,
    Strategy,
    flag,
)
from unisono.recipe.options import OPTIONS, RUN_ONLY_OPTIONS
from unisono.recipe.recipe import Recipe

__all__ = [
    "Recipe", "Model", "Data", "Ranks", "Learning", "Strategy", "Faults", "Output", "OPTIONS", "RUN_ONLY_OPTIONS",
    "DEFAULT_SHARDS", "MOST_THREADS", "flag",
]  # fmt: skip
