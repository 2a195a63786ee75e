"""Fitting: whether a network is one for the data it is to learn.

The one idea: what is wrong is told by what the data are (text, classes, numbers), not by where the network fails.

    check_fits(recipe, dataset, job.model)                    # a `UserError` if it is not
"""

from collections.abc import Callable

from unisono.data.dataset import Dataset
from unisono.data.doubts import NO_ONE_HOT, one_hot
from unisono.errors import UserError
from unisono.models.base import Model
from unisono.models.nets import NETWORKS
from unisono.recipe import Recipe


def check_fits(recipe: Recipe, dataset: Dataset, make: Callable[[], Model]) -> None:
    """make: the network of the recipe, whose engine is known by now."""
    # Before the network is made: one number to predict would be told as too few classes.
    network = NETWORKS.get(recipe.model.name.partition(":")[0]) if recipe.model.engine == "numpy" else None
    if (
        (network is not None and network.hidden and not dataset.classes)
        or (recipe.model.engine == "numpy" and dataset.tokens)
        or make().classifies != bool(dataset.classes)
    ):
        kind = "text" if dataset.tokens else "classes" if dataset.classes else "numbers to predict"
        raise UserError(
            f"--model {recipe.model.name} does not fit --data {recipe.data.name}, which has {kind}",
            hint=NO_ONE_HOT
            if one_hot(dataset)
            else "use --model linear for numbers, mlp or bn-mlp for classes, gpt for text, or for any of them "
            "FILE.py:FUNCTION, a network of your own",
        )
