"""SupervisedHooks: what a strategy does in a supervised run, beside what the arena does for all of them.

The one idea: the run (`runs/supervised_run.py`) makes the arena, forks ranks and watches over them, and knows no
strategy; where strategies differ, it calls a hook. The process that forks the ranks makes the hooks, and the ranks
inherit them.

    hooks = spec.supervise(job, model, shared)
    with hooks.running(): ...                                   # around all ranks
    strategy = hooks.strategy(member, model, on_snapshot_copy, remote, report)    # in a rank
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import View
from unisono.models.base import Model
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.base import Strategy
from unisono.strategies.machines.remote_view import RemoteView


class SupervisedHooks(ABC):
    """For strategies whose ranks wait for each other in every round; others override more."""

    pieces: float = 1.0
    """How many pieces of work a rank does in a round."""
    crashes_counted: bool = True
    """Whether a round that ended many ranks is given up."""

    def __init__(self, shared: ArenaState) -> None:
        self._shared = shared

    @abstractmethod
    def strategy(
        self,
        member: Member,
        model: Model,
        on_snapshot_copy: Callable[[int], None],
        remote: RemoteView,
        report: Callable[[Any], None],
    ) -> Strategy:
        """The strategy of a rank. on_snapshot_copy(position): there is a spare copy of what that round left."""

    def running(self) -> AbstractContextManager[None]:
        """Around the life of all ranks."""
        return nullcontext()

    def resume(self, epoch: int, step: int) -> None:  # noqa: B027  (the arena has it all)
        """Before the first rank: the run goes on after that step of a snapshot; epochs count from 1, steps from 0."""

    def restore(self, view: View) -> None:
        """After the death of a rank: takes back what was begun of a round that is to be done again."""
        self._shared.restore(view)

    def whole(self, position: int, epoch: int, step: int) -> int:
        """When no rank is left: the last round that is done as a whole. position: which they ended after, that step."""
        return position
