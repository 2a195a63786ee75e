"""AsyncHooks: asynchronous ranks under a supervisor, and the work of its process while there is no rank.

    setup = set_up(model, terms, options, pushes=3750, size=4); hooks = AsyncHooks(shared, setup, ranks=4)

The one idea: the process that forks the ranks makes their memory, the pipes by which they wake each other and the locks
of the masters, and it is still there when all ranks are gone. So before the first rank it marks which batches of a
resumed run are done, and after the last one it applies the pushes that are in the log.

A round is a whole epoch: it may end several ranks for several reasons, and it may be left in the middle.

Limits: for ranks that are forked afterwards.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, final

from unisono.arena.arena import Arena
from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import View
from unisono.arena.sync.crash_safe_lock import CrashSafeLocks
from unisono.arena.sync.wakeup import Wakeup
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.asynchronous.arena.buffers import (
    AsyncBuffersPlan,
    AsyncSetup,
    adopt_sums,
    plan_async_buffers,
    settle_sums,
)
from unisono.strategies.asynchronous.arena.parameter_part import make_parts
from unisono.strategies.asynchronous.arena.strategy import AsyncArena
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.base import Strategy
from unisono.strategies.machines.mailbox import RemoteView
from unisono.strategies.spec import SupervisedHooks


def set_up(model: Model, terms: AsyncOptions, options: OptimizerOptions, pushes: int, size: int) -> AsyncSetup:
    """Makes the memory of masters and workers, for ranks that are forked afterwards."""
    sections = plan_async_buffers(model, terms, len(make(options).state_names), size, pushes)
    with closing(Arena.create(AsyncBuffersPlan(sections, size, terms.masters))) as arena:
        return AsyncSetup(arena.state, terms, options)


@final
class AsyncHooks(SupervisedHooks):
    """setup: the memory of masters and workers."""

    crashes_counted = False

    def __init__(self, shared: ArenaState, setup: AsyncSetup, ranks: int) -> None:
        super().__init__(shared)
        self.setup, self._ranks = setup, ranks
        self.pieces = max(1.0, setup.terms.pushes / ranks)

    def strategy(
        self,
        member: Member,
        model: Model,
        on_snapshot_copy: Callable[[int], None],
        remote: RemoteView,
        report: Callable[[Any], None],
    ) -> Strategy:
        resting = SyncArena(self._shared, member, model, self.setup.options, on_snapshot_copy)
        return AsyncArena(resting, self._shared, member, model, self.setup, report)

    @contextmanager
    def running(self) -> Iterator[None]:
        async_buffers = self.setup.async_buffers
        with (
            closing(Wakeup(self._ranks)) as async_buffers.wakeup,
            closing(CrashSafeLocks(self.setup.terms.masters)) as async_buffers.crash_safe_locks,
        ):
            yield
        async_buffers.wakeup = async_buffers.crash_safe_locks = None

    def resume(self, epoch: int, step: int) -> None:
        adopt_sums(self.setup.async_buffers, self._shared.steps, epoch + step)

    def restore(self, view: View) -> None:
        """Releases the locks of a dead rank; the rank that continues its work takes back what was begun."""
        if self.setup.async_buffers.crash_safe_locks is not None:
            self.setup.async_buffers.crash_safe_locks.reset()

    def whole(self, position: int, epoch: int, step: int) -> int:
        under_way = position + step  # this round, or the one after a closing round
        return under_way if self._settle(epoch + step) else under_way - 1

    def _settle(self, epoch: int) -> bool:
        """When no rank is left: applies what is in the log of the epoch; whether the epoch is whole."""
        for part in make_parts(self.setup, self._shared):
            part.open(epoch, len(self._shared.steps))
            while part.behind:
                part.turn()
            part.close()
        return settle_sums(self.setup.async_buffers, self._shared.steps, epoch)
