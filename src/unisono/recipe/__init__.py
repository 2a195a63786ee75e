"""Recipe: everything that decides the result of a run, in groups.

option_groups.py   the options, each defined once, with its help text
recipe.py          `Recipe`: the groups together; the options by flat name; a TOML file that explains every option
reading.py         a recipe from a shipped name, a TOML file, the command line or records
"""

from unisono.recipe.option_groups import (
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
from unisono.recipe.recipe import OPTIONS, RUN_ONLY_OPTIONS, Recipe

__all__ = [
    "Recipe", "Model", "Data", "Ranks", "Learning", "Strategy", "Faults", "Output", "OPTIONS", "RUN_ONLY_OPTIONS",
    "DEFAULT_SHARDS", "MOST_THREADS", "flag",
]  # fmt: skip
