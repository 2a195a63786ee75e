"""local: replicas of the network walk some steps alone, each on its own shard of every batch, and are then averaged.

Local SGD (Stich 2019, arXiv 1805.09767), and post-local SGD (Lin and others 2020, arXiv 1808.07217), which meets after
every step for the first epochs. What is exchanged falls with the number of steps between two meetings
(`sync_schedule.py`).

The one idea: replicas are *logical*, one a shard, and belong to the recipe; ranks walk for them. A meeting is a round
of another strategy, whose shards are the replicas' local steps (`local_steps.py`) and whose optimizer is plain SGD at
rate 1. So on the arena (`strategies/arena/sync.py`) any number of ranks ends with the same bits, and the death of a
rank costs at most the steps since the last meeting, which others walk again; over messages
(`strategies/messages/sync.py`) any all-reduce averages, and replicas stay with the rank that has their state.

    strategy = on_arena(shared, member, LocalSteps(home, walker, options), SyncSchedule(plan, every=16))

What is averaged: parameters, by the samples that each replica has seen since the last meeting; buffers, by replica.
What is not: momentum and Adam's sums stay each replica's own, as in Lin's local momentum; to exchange them would double
or triple the bytes. What replicas tell is how far they moved, which may be rounded to bfloat16
(`strategies/wire_type.py`); parameters never are. With one step between meetings and plain SGD it is `sync`, but
for rounding.

Limits: snapshots are made, and requests to end are obeyed, when replicas meet. Synchronised batch norm is refused.
"""

from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.comm.base import Communicator
from unisono.data.loader import Group
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart, join_arena
from unisono.strategies.arena.state import ArenaExtent, ArenaState, SnapshotSource, padded
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.base import Batch, Check, Clock, EpochExtras, Measure, StepResult, Strategy, Tell, unchecked
from unisono.strategies.local.local_steps import LocalSteps, ticket
from unisono.strategies.local.replica_optimizer_state import ReplicaState
from unisono.strategies.local.sync_schedule import SyncSchedule
from unisono.strategies.machines.mailbox import ONE_MACHINE, RemoteView
from unisono.strategies.messages.sync import SyncMessages, SyncMessagesOptions

AVERAGING = OptimizerOptions("sgd", lr=1.0)
"""What makes a step of the other strategy an average."""


def on_arena(
    shared: ArenaState,
    member: Member,
    local_steps: LocalSteps,
    sync_schedule: SyncSchedule,
    on_snapshot_copy: Callable[[int], None] = lambda position: None,
    remote: RemoteView = ONE_MACHINE,
) -> "Local":
    """On the shared memory of one node, planned for the optimizer `AVERAGING`."""

    def between() -> None:
        member.pulse()
        member.check_membership()

    local_steps.settle(shared.states, between)
    return Local(
        SyncArena(shared, member, local_steps, AVERAGING, on_snapshot_copy, remote), local_steps, sync_schedule
    )


def join_local(
    comm: Communicator,
    local_steps: LocalSteps,
    sync_schedule: SyncSchedule,
    extent: ArenaExtent,
    rng: np.random.Generator,
    start: ArenaStart = NEW_START,
) -> "Local":
    """On an arena per machine; called by every rank of `comm`."""
    joined = join_arena(comm, local_steps, AVERAGING, extent, rng, start)
    return on_arena(joined.shared, joined.member, local_steps, sync_schedule, remote=joined.remote)


def make_local_replica(
    comm: Communicator,
    local_steps: LocalSteps,
    sync_schedule: SyncSchedule,
    extent: ArenaExtent,
    allreduce: str,
    rng: np.random.Generator,
) -> "Local":
    """Over messages, averaged by that algorithm; called by every rank of `comm`."""
    terms = SyncMessagesOptions(local_steps.wire, extent.shards, extent.steps)
    replica, length = (
        SyncMessages(comm, local_steps, AVERAGING, allreduce, extent.epochs, terms),
        local_steps.layout.length,
    )
    replica.start(local_steps, rng)
    if local_steps.state_vectors:
        local_steps.settle(ReplicaState.alone(extent.shards, local_steps.state_vectors, padded(length)))
    return Local(replica, local_steps, sync_schedule)


@final
class Local(Strategy):
    """One rank's side; `meeting` is the strategy that averages."""

    def __init__(self, meeting: Strategy, local_steps: LocalSteps, sync_schedule: SyncSchedule) -> None:
        self.rank, self.size = meeting.rank, meeting.size
        self.params, self.buffers, self.scores = meeting.params, meeting.buffers, meeting.scores
        self._meeting, self._local_steps, self._sync_schedule = meeting, local_steps, sync_schedule
        self._batches: list[Batch] = []

    @property
    def at(self) -> tuple[int, bool]:
        return self._meeting.at

    @property
    def first(self) -> bool:
        return self._meeting.first

    @property
    def hosts(self) -> list[str]:
        return self._meeting.hosts

    def share(self, live: int) -> range:
        return self._meeting.share(live)

    @property
    def snapshot_source(self) -> SnapshotSource | None:
        # Over messages, each rank has the states of its own replicas; of several machines, each those of its ranks'.
        return self._meeting.snapshot_source if isinstance(self._meeting, SyncArena) and self._meeting.alone else None

    def set_on_snapshot_copy(self, on_snapshot_copy: Callable[[int], None]) -> None:
        self._meeting.set_on_snapshot_copy(on_snapshot_copy)

    def ask_to_halt(self) -> None:
        self._meeting.ask_to_halt()

    def halts_after(self, position: int) -> bool:
        return self._meeting.halts_after(position)

    def step(self, batch: Batch) -> StepResult:
        """Walked when replicas meet, together with the steps before it: only then is it known who walks for whom.

        What it finds until then is nothing; what the meeting finds is of all of them.
        """
        self._batches.append(batch)
        if not self._sync_schedule.due(batch.epoch, batch.step):
            return StepResult(0.0, 0.0)
        batches, self._batches = self._batches, []
        self._local_steps.open(batches, batch.position)
        return self._meeting.step(self._round(batches))

    def _round(self, batches: list[Batch]) -> Batch:
        """The batch whose shards are local steps. Whoever joins after they were made has not all the `batches`, and
        needs none: the numbers come from the sync schedule."""
        last, sync_schedule = batches[-1], self._sync_schedule
        span = sync_schedule.span(last.epoch, last.step)
        live = sync_schedule.live(span)
        seen = [sync_schedule.seen(span, replica) for replica in range(live)]

        def load(replicas: range) -> list[Group]:
            tickets = [ticket(replica, seen[replica]) for replica in replicas]
            return [Group(replica, paper, paper) for replica, paper in zip(replicas, tickets, strict=True)]

        return Batch(
            last.position, last.epoch, span.start, live, sum(seen), AVERAGING.lr, last.number, load,
            shares=last.shares, due=any(batch.due for batch in batches), steps=len(span),
        )  # fmt: skip

    def evaluate(
        self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False, check: Check = unchecked
    ) -> np.ndarray:
        return self._meeting.evaluate(position, count, measure, tell, due=due, check=check)

    def check_reproducible(self) -> None:
        self._local_steps.check_reproducible()

    def close(self) -> None:
        self._meeting.close()

    def epoch_sums(self) -> tuple[float, float]:
        return self._meeting.epoch_sums()

    def times(self, epoch: int) -> list[dict[str, Any]]:
        return self._meeting.times(epoch)

    def step_s(self) -> float:
        return self._meeting.step_s()

    def epoch_extras(self, epoch: int) -> EpochExtras:
        return self._meeting.epoch_extras(epoch)

    def clock(self) -> Clock:
        return self._meeting.clock()

    def note_memory(self, nbytes: int) -> None:
        self._meeting.note_memory(nbytes)

    def memory_bytes(self) -> int:
        return self._meeting.memory_bytes()

    def contributions(self) -> np.ndarray:
        """Of the last meeting: what stands for a gradient is how far the replicas of a rank have moved the average."""
        return self._meeting.contributions()
