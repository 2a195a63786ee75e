"""--num-gpus: another name of --ranks, which users of other tools know; what they are told where no GPU is used.

    note_of_run(Gpus(2), Recipe()); note_of_job(Gpus(2), Recipe.from_options(strategy="ddp"), sbatch=())

The one idea: ranks are ranks, whatever they are called; but who asks for GPUs and gets processors should hear it. So
the number remembers by which word it was given.
"""

from collections.abc import Sequence
from typing import final

from unisono.recipe import Recipe


@final
class Gpus(int):
    """A number of ranks that was given as --num-gpus."""


def note_of_run(asked: object, recipe: Recipe) -> str:
    """What to say before a run; nothing if no GPUs were asked for, or ranks have them."""
    if not isinstance(asked, Gpus):
        return ""
    from unisono.strategies.registry import of, resolve

    if not of(recipe).supports.gpus:
        return _without(asked, recipe)
    if resolve(recipe).strategy.device != "cpu":
        return ""
    why = "--device cpu" if recipe.strategy.device == "cpu" else "torch sees no GPU here"
    return f"Note: --num-gpus {asked} is --ranks {asked}, on processors: {why}."


def note_of_job(asked: object, recipe: Recipe, sbatch: Sequence[str]) -> str:
    """The same before a job, whose nodes nobody here can look at. sbatch: further options of the job."""
    if not isinstance(asked, Gpus):
        return ""
    from unisono.strategies.registry import of

    if not of(recipe).supports.gpus:
        return _without(asked, recipe)
    if any("gpu" in option or "gres" in option for option in sbatch):
        return ""
    told = f"Note: --num-gpus {asked} is --ranks {asked}: the job asks SLURM for no GPU"
    return f"{told}; where a cluster wants that, add --sbatch=--gpus-per-node=N."


def _without(asked: Gpus, recipe: Recipe) -> str:
    told = f"Note: --num-gpus {asked} is --ranks {asked}: --strategy {recipe.strategy.name} computes on processors"
    return f"{told}; --strategy ddp or accelerate uses GPUs."
