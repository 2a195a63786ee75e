"""AsyncHooks: asynchronous ranks under a supervisor.

A round is a whole epoch: it may end several ranks for several reasons, and it may be left in the middle. What ranks
wake each other and take turns with belongs to the process that forks them.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, final

from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import View
from unisono.arena.sync.crash_safe_lock import CrashSafeLocks
from unisono.arena.sync.wakeup import Wakeup
from unisono.models.base import Model
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.asynchronous.arena.setup import AsyncSetup, adopt, settle
from unisono.strategies.asynchronous.arena.strategy import AsyncArena
from unisono.strategies.base import Strategy
from unisono.strategies.machines.remote_view import RemoteView
from unisono.strategies.supervised import SupervisedHooks


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
        adopt(self.setup, self._shared, epoch + step)

    def restore(self, view: View) -> None:
        """Releases the locks of a dead rank; the rank that continues its work takes back what was begun."""
        if self.setup.async_buffers.crash_safe_locks is not None:
            self.setup.async_buffers.crash_safe_locks.reset()

    def whole(self, position: int, epoch: int, step: int) -> int:
        under_way = position + step  # this round, or the one after a closing round
        return under_way if settle(self.setup, self._shared, epoch + step) else under_way - 1
