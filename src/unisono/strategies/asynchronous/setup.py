"""Setup: what all ranks of an asynchronous run have in common, and what is done with it while there is no rank.

The one idea: the process that forks the ranks makes the memory, and it is also the one that is there when they all are
gone: before the first rank it says what a resumed run has done already, after the last one it ends what they had begun.

    setup = set_up(model, terms, options, pushes=3750, size=4); settle(setup, shared, epoch=2)

Limits: for ranks that are forked afterwards.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import final

from unisono.arena.arena import Arena
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.asynchronous import sums
from unisono.strategies.asynchronous.boxes import Boxes, BoxesPlan, plan_boxes
from unisono.strategies.asynchronous.part import Part
from unisono.strategies.asynchronous.terms import Terms
from unisono.strategies.shared import Shared


@final
@dataclass(frozen=True)
class Setup:
    """What all ranks of a run have in common."""

    boxes: Boxes
    terms: Terms
    options: OptimizerOptions
    """The masters'."""


def set_up(model: Model, terms: Terms, options: OptimizerOptions, pushes: int, size: int) -> Setup:
    """With memory of its own, for ranks that are forked afterwards."""
    sections = plan_boxes(model, terms, len(make(options).state_names), size, pushes)
    with closing(Arena.create(BoxesPlan(sections, size, terms.masters))) as arena:
        return Setup(arena.state, terms, options)


def make_parts(setup: Setup, shared: Shared) -> list[Part]:
    """All parts of the parameters."""
    return [
        Part(setup.boxes, shared.vectors, shared.buffers, number, setup.terms, setup.options)
        for number in range(setup.terms.masters)
    ]


def settle(setup: Setup, shared: Shared, epoch: int) -> bool:
    """When no rank is left: applies what is in the log of the epoch; whether the epoch is whole."""
    for part in make_parts(setup, shared):
        part.open(epoch, len(shared.steps))
        while part.behind:
            part.turn()
        part.close()
    return sums.leave(setup.boxes, shared.steps, epoch)


def adopt(setup: Setup, shared: Shared, epoch: int) -> None:
    """Before the first rank of a resumed run: what is done of the epoch that is next."""
    sums.adopt(setup.boxes, shared.steps, epoch)
