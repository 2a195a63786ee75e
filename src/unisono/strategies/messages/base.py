"""MessageStrategy: a base for strategies whose ranks share no memory, each with its own copy of the parameters.

The one idea: rank r always computes the r-th part of everything, and no other rank takes it over; so an evaluation is a
part each, an all-reduce and a gather, whatever a step does. A rank's counts are in its `MessageStats`.

    @final
    class Mine(MessageStrategy): ...               # and a `step`, which counts in self._message_stats

`SnapshotMessageStrategy` can be saved and asked to halt. All replicas are equal, so the snapshot of a run is that of
the first rank (`ReplicaSnapshot`). A request is a word that only one process sees; it becomes a decision of all ranks
in a collective that they call anyway.

    own = ReplicaSnapshot(lasting); own.asked = True; own.close_round(position, due=False, halt=True)

Limits: the death of a rank ends the run.
"""

import hashlib
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono import aligned
from unisono.arena.membership.halt_and_snapshot_requests import Requests
from unisono.arena.membership.protocol import words_needed
from unisono.comm.base import Communicator
from unisono.data.shards import shards_of_rank
from unisono.errors import UserError
from unisono.models.base import Model
from unisono.strategies.arena.state import PersistentArrays, padded
from unisono.strategies.base import Check, Clock, Measure, Strategy, Tell, unchecked
from unisono.strategies.stats import MessageStats


class MessageStrategy(Strategy):
    """One rank's side; `step` is left to others."""

    def __init__(self, comm: Communicator, model: Model, epochs: int) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._comm = comm
        self._message_stats = MessageStats(comm, model)
        self.params = aligned.zeros(padded(model.layout.length))
        self.buffers = aligned.zeros(model.buffers_layout.length)
        self.scores = np.zeros((epochs + 1, 3))

    def start(self, model: Model, rng: np.random.Generator) -> None:
        """Starting values, drawn from `rng`, which is the same on every rank; a `UserError` on all if they differ."""
        params = self.params[: model.layout.length]
        model.init(params, self.buffers, rng)
        digest = hashlib.blake2b(params.data, digest_size=16)
        digest.update(self.buffers.data)
        found = self._comm.all_gather(np.frombuffer(digest.digest(), np.int64))  # (size, 2)
        others = np.flatnonzero((found != found[0]).any(1)).tolist()
        if others:
            told = f"rank {others[0]} starts" if len(others) == 1 else f"ranks {', '.join(map(str, others))} start"
            raise UserError(
                f"{told} from other weights than rank 0: what the function of --model builds depends on the process",
                hint="draw from torch, NumPy (np.random) or random as they are: they are seeded from --seed",
            )

    @property
    def at(self) -> tuple[int, bool]:
        return 0, True

    @property
    def hosts(self) -> list[str]:
        return self._message_stats.hosts

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, live: int) -> range:
        return shards_of_rank(live, self.size, self.rank)

    def halts_after(self, position: int) -> bool:
        return False

    def evaluate(
        self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False, check: Check = unchecked
    ) -> np.ndarray:
        self._message_stats.end()
        self._keep()
        check()
        table = np.zeros((count, 2))
        for number in shards_of_rank(count, self.size, self.rank):
            table[number] = measure(number)
        if count:
            self._comm.all_reduce(table)  # adds zeros, exactly
        if self._message_stats.gather():
            tell(table)
        # The scores decide whether to stop: if only rank 0 had them, it would leave and the others wait for ever.
        self._comm.broadcast(self.scores)
        return table

    def _keep(self) -> None:
        """Puts what was learnt into `params` and `buffers`, if it is elsewhere; called by all, before they measure."""

    def epoch_sums(self) -> tuple[float, float]:
        return self._message_stats.epoch_sums()

    def times(self, epoch: int) -> list[dict[str, Any]]:
        return self._message_stats.times()

    def clock(self) -> Clock:
        return self._message_stats.clock()

    def note_memory(self, nbytes: int) -> None:
        self._message_stats.note_memory(nbytes)

    def memory_bytes(self) -> int:
        return self._message_stats.memory_bytes()

    def contributions(self) -> np.ndarray:
        return self._message_stats.contributions()


@final
class ReplicaSnapshot:
    """The snapshots of one rank; see `SnapshotSource`. A spare copy is made at the end of the round that decided it."""

    def __init__(self, lasting: PersistentArrays) -> None:
        self.requests = Requests([0] * words_needed(1))
        self.lasting = lasting
        self.spare: PersistentArrays | None = None
        self.asked = False
        """Whether this rank was asked to halt: the others do not know yet."""
        self._on_snapshot_copy: Callable[[int], None] | None = None

    def lasting_at(self, position: int) -> PersistentArrays:
        return self.lasting

    def keep(self, on_snapshot_copy: Callable[[int], None]) -> None:
        """This rank's copy is the one that is saved."""
        self._on_snapshot_copy = on_snapshot_copy

    def close_round(self, position: int, *, due: bool, halt: bool = False) -> None:
        """Round `position` is done. due: a snapshot of it is wanted; halt: some rank was asked to halt, as all know."""
        if halt:
            self.requests.ask_to_halt()
        self.requests.decide(position, due=due)
        if self._on_snapshot_copy is not None and self.requests.snapshot_after(position):
            self._copy()
            self._on_snapshot_copy(position)

    def _copy(self) -> None:
        lasting = self.lasting
        if self.spare is None:
            *vectors, buffers, steps, scores, missed = (array.copy() for array in lasting.arrays)
            self.spare = PersistentArrays(vectors, buffers, steps, scores, missed)
            return
        for place, value in zip(self.spare.arrays, lasting.arrays, strict=True):
            np.copyto(place, value)


class SnapshotMessageStrategy(MessageStrategy):
    """Replicas whose run can be saved and asked to halt; a subclass makes `_own`."""

    _own: ReplicaSnapshot

    @property
    def snapshot_source(self) -> ReplicaSnapshot:
        return self._own

    def set_on_snapshot_copy(self, on_snapshot_copy: Callable[[int], None]) -> None:
        if self.first:
            self._own.keep(on_snapshot_copy)

    def ask_to_halt(self) -> None:
        self._own.asked = True

    def halts_after(self, position: int) -> bool:
        return self._own.requests.halts_after(position)
