"""Libraries: what computes a recipe besides NumPy, so that their versions can be told with its results.

    libraries_of([Recipe.from_options(strategy="accelerate")])  # ["torch", "accelerate"]

The one idea: it is known from the recipe alone, resolved or not, and nothing is imported for it: the process that
writes a run or a study down need not have torch loaded. Of a recipe that cannot run nothing is said here.
"""

from collections.abc import Iterable
from contextlib import suppress

from unisono.errors import UserError
from unisono.models.engines import choose_engine
from unisono.recipe import Recipe
from unisono.strategies.registry import find


def libraries_of(recipes: Iterable[Recipe]) -> list[str]:
    """Names of packages, each once."""
    found: dict[str, None] = {}
    for recipe in recipes:
        found |= dict.fromkeys(spec.packages if (spec := find(recipe.strategy.name)) else ())
        with suppress(UserError):
            if (
                recipe.model.sync_batchnorm
                or choose_engine(recipe.model.engine, recipe.model.name, recipe.model.precision) == "torch"
            ):
                found |= {"torch": None}
    return list(found)
