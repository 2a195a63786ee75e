"""AsyncHooks: asynchronous ranks under a supervisor.

A round is a whole epoch: it may end several ranks for several reasons, and it may be left in the middle. What ranks
wake each other and take turns with belongs to the process that forks them.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, final

from unisono.arena.bells import Bells
from unisono.arena.member import Member
from unisono.arena.pens import Pens
from unisono.arena.protocol import View
from unisono.models.base import Model
from unisono.strategies.asynchronous.arena import AsyncArena
from unisono.strategies.asynchronous.setup import Setup, adopt, settle
from unisono.strategies.base import Strategy
from unisono.strategies.nodes.away import Away
from unisono.strategies.shared import Shared
from unisono.strategies.supervised import SupervisedHooks
from unisono.strategies.sync import Sync


@final
class AsyncHooks(SupervisedHooks):
    """setup: the memory of masters and workers."""

    crashes_counted = False

    def __init__(self, shared: Shared, setup: Setup, ranks: int) -> None:
        super().__init__(shared)
        self.setup, self._ranks = setup, ranks
        self.pieces = max(1.0, setup.terms.pushes / ranks)

    def strategy(
        self,
        member: Member,
        model: Model,
        on_spare: Callable[[int], None],
        away: Away,
        report: Callable[[Any], None],
    ) -> Strategy:
        resting = Sync(self._shared, member, model, self.setup.options, on_spare)
        return AsyncArena(resting, self._shared, member, model, self.setup, report)

    @contextmanager
    def running(self) -> Iterator[None]:
        boxes = self.setup.boxes
        with closing(Bells(self._ranks)) as boxes.bells, closing(Pens(self.setup.terms.masters)) as boxes.pens:
            yield
        boxes.bells = boxes.pens = None

    def resume(self, epoch: int, step: int) -> None:
        adopt(self.setup, self._shared, epoch + step)

    def restore(self, view: View) -> None:
        """Takes back the pens of a dead rank; whoever goes on with its work takes back what it had begun."""
        if self.setup.boxes.pens is not None:
            self.setup.boxes.pens.restore()

    def whole(self, position: int, epoch: int, step: int) -> int:
        under_way = position + step  # this round, or the one after a closing round
        return under_way if settle(self.setup, self._shared, epoch + step) else under_way - 1
