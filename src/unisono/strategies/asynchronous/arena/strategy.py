"""AsyncArena: asynchronous training in the memory of one node. An epoch is one round, in which everybody runs freely.

The one idea: the batch of a round is the whole epoch, and its shards are the pushes. Between the meetings READY and
COMMIT masters and workers exchange through boxes, without meeting; then all are at rest, and what follows (evaluation
on the masters' parameters, records, snapshots) is what `SyncArena` does after any round, so it is left to it.

    strategy = AsyncArena(SyncArena(shared, member, model, options), shared, member, model, AsyncSetup(async_buffers,
    terms, options))

Where workers are few for the cores, a worker that has pushed does not sleep until a master wakes up: it lends a hand
and does what is due itself, to the log and to the parts, if nobody else is at it (`arena/sync/crash_safe_lock.py`).
What comes of it is the same, and the gradient is still in its cache.

Any rank may die: what it served is served by another master, or by a worker if none is left, until its replacement
comes; what it had computed and not sent is dealt anew. Everything is in the boxes (`buffers.py`).

A request to halt ends the round at once: what is not done of the epoch is left to whoever resumes the run.

Limits: one node. Parameters that a push does not use have a gradient of zero.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import freezing
from unisono.arena.sync.wakeup import NONE, PollLimits
from unisono.messages.rank_reports import Progress, SendReport
from unisono.models.base import Model
from unisono.resources import usable_cores
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.asynchronous.arena.arena_sequencer import ArenaSequencer
from unisono.strategies.asynchronous.arena.buffers import COUNTS, DONE, HALTED, AsyncSetup, count_of
from unisono.strategies.asynchronous.arena.parameter_part import ParameterShard, make_parts
from unisono.strategies.asynchronous.arena.worker import Worker
from unisono.strategies.asynchronous.staleness_stats import contributions_of, staleness_stats
from unisono.strategies.base import Batch, Check, Clock, EpochExtras, Measure, StepResult, Strategy, Tell, unchecked

PROGRESS_S = 0.2
LENT = 2
"""Workers for each core up to which they lend the masters a hand."""
OWN_CORE, SHARED_CORE = PollLimits(1000, yields=False), PollLimits(200, yields=True)
"""What a worker does that lends a hand before it goes to sleep: whom it waits for is at work on another core, or waits
for this one, and will be done sooner than a sleep would end."""


def roles(members: tuple[int, ...], masters: int) -> tuple[list[int], list[int]]:
    """(who serves parts, who computes): ranks below `masters`, and the others; if none is left, others stand in.

    >>> roles((0, 1, 2, 3), 2), roles((2, 3), 2), roles((0, 1), 2), roles((3,), 2)
    (([0, 1], [2, 3]), ([2], [2, 3]), ([0, 1], [0, 1]), ([3], [3]))
    """
    serving = [slot for slot in members if slot < masters] or [members[0]]
    return serving, [slot for slot in members if slot >= masters] or list(members)


def epoch_of(position: int) -> int:
    """Of a round: those of an asynchronous run are, in turn, an epoch and what closes it.

    >>> [epoch_of(position) for position in range(5)]
    [0, 1, 1, 2, 2]
    """
    return (position + 1) // 2


class Freezing(Exception):
    """Everybody is to stand still."""


@final
class AsyncArena(Strategy):
    """One rank's side. `resting`: what it does when nobody computes. `report`: told how an epoch goes on."""

    def __init__(
        self,
        resting: SyncArena,
        shared: ArenaState,
        member: Member,
        model: Model,
        setup: AsyncSetup,
        report: SendReport = lambda report: None,
    ) -> None:
        self.rank, self.size = resting.rank, resting.size
        self.params, self.buffers, self.scores = resting.params, resting.buffers, resting.scores
        self._resting, self._shared, self._member, self._model = resting, shared, member, model
        self._async_buffers, self._terms, self._report = setup.async_buffers, setup.terms, report
        async_buffers, terms = setup.async_buffers, setup.terms
        self._copy, self._copied_buffers = async_buffers.copies[self.rank], async_buffers.buffers[self.rank]
        self._worker = Worker(async_buffers, self.rank, model, terms)
        self._arena_sequencer = ArenaSequencer(async_buffers, terms, shared.steps, shared.requests)
        self._all = make_parts(setup, shared)
        self._serves: list[ParameterShard] = []
        self._computes = self._decides = self._lends = False
        self._epoch, self._told = epoch_of(resting.at[0]), time.perf_counter()  # who joins later may find it done
        model.bind(self._copy, self._copied_buffers)

    # --- an epoch ----------------------------------------------------------------------------------------------------

    def step(self, batch: Batch) -> StepResult:
        if batch.epoch != self._epoch:
            self._epoch = batch.epoch
            self._worker.forget()
            for part in self._all:
                part.busy_s = 0.0
        self._resting.round(batch, partial(self._exchange, batch))
        return StepResult(*self.epoch_sums())

    def _exchange(self, batch: Batch) -> None:
        """Until every push of the epoch is applied; after a change of membership goes on from what is in the boxes."""
        begun, member = time.perf_counter(), self._member
        before = self._busy()
        serving, computing = roles(member.view.members, self._terms.masters)
        self._serves = [part for n, part in enumerate(self._all) if serving[n % len(serving)] == self.rank]
        self._computes, self._decides = self.rank in computing, serving[0] == self.rank
        # A recorded order may be given up in the middle of an epoch, which is one sequencer's to decide.
        cores, lent = usable_cores(), self._async_buffers.crash_safe_locks is not None and self._terms.planned is None
        self._lends = lent and len(computing) <= LENT * cores
        if self._computes:  # before anything that waits: others may wait to learn where this worker is
            self._worker.open(batch, self.rank if self._lends else serving[0])
        for number, part in enumerate(self._all):
            if not self._lends and part not in self._serves:
                continue
            try:
                with self._holding(number):
                    part.open(batch.epoch, batch.live)
                    if number == 0:
                        self._arena_sequencer.open(batch.epoch, computing, serving, self._linger)
                        self._write_down(all_of_it=True)  # what was posted before is nobody's news any more
            except Freezing:
                member.check_membership()
                raise AssertionError("a freeze does not end without a new view") from None
        looks = NONE
        if self._lends and self._computes:
            looks = OWN_CORE if len(computing) <= cores else SHARED_CORE
        try:
            while not self._over(batch.epoch):
                member.check_membership()
                if not self._turn(batch):
                    self._async_buffers.wait(self.rank, partial(self._stir, batch), looks)
            for part in self._serves:
                part.sync()
                part.close()
        finally:
            data_s, compute_s, update_s = (now - then for now, then in zip(self._busy(), before, strict=True))
            wait_s = time.perf_counter() - begun - data_s - compute_s - update_s
            self._resting.count(data_s=data_s, compute_s=compute_s, update_s=update_s, wait_s=wait_s)
        worker = self._worker
        self._async_buffers.counts[self.rank] = (worker.clips, 0.0, *worker.waits_s)

    @contextmanager
    def _holding(self, number: int) -> Iterator[None]:
        """The pen of a part, as soon as nobody else has it."""
        crash_safe_locks = self._async_buffers.crash_safe_locks
        while self._lends and crash_safe_locks is not None and not crash_safe_locks.try_acquire(number):
            self._member.check_membership()
            self._linger()
        try:
            yield
        finally:
            if self._lends and crash_safe_locks is not None:
                crash_safe_locks.release(number)

    def _linger(self) -> None:
        """For somebody else, who is in the middle of something. Nobody stands still with a pen in hand: it would be put
        back for him, and then by him."""
        if freezing(self._member.words, self._member.view.number):
            raise Freezing
        self._member.pulse()
        os.sched_yield()

    def _write_down(self, *, all_of_it: bool) -> bool:
        """What the log has to be told, each applied to part 0 at once; not all of it: what was there at the first look,
        for whoever sends something meanwhile, and is awake, sees to it himself."""
        moved = False
        while self._arena_sequencer.turn():
            self._all[0].turn()
            moved = True
            if not all_of_it and not self._arena_sequencer.pending:
                break
        return moved

    def _lend(self) -> bool:
        """Does what is due, if nobody else does. Whoever does looks again afterwards: he who found the pen taken, and
        went to sleep, has said so before."""
        crash_safe_locks, moved = self._async_buffers.crash_safe_locks, False
        assert crash_safe_locks is not None
        for number, part in enumerate(self._all):
            while (
                part.behind or (number == 0 and self._arena_sequencer.due(self.rank))
            ) and crash_safe_locks.try_acquire(number):
                try:
                    part.sync()
                    if number == 0:
                        self._arena_sequencer.sync()
                        moved |= self._write_down(all_of_it=False)
                    while part.turn():
                        moved = True
                finally:
                    crash_safe_locks.release(number)
        return moved

    def _busy(self) -> tuple[float, float, float]:
        return self._worker.data_s, self._worker.compute_s, sum(part.busy_s for part in self._all)

    def _over(self, epoch: int) -> bool:
        parts = self._all if self._lends else self._serves
        return bool(count_of(self._async_buffers.words[DONE], epoch)) and not any(part.behind for part in parts)

    def _stir(self, batch: Batch) -> bool:
        self._member.pulse()
        return freezing(self._member.words, self._member.view.number) or self._over(batch.epoch) or self._turn(batch)

    def _turn(self, batch: Batch) -> bool:
        """One thing of each kind that this rank has to do, if there is any."""
        if self._lends:
            moved = self._lend()
        else:
            moved = self._decides and self._arena_sequencer.turn()
            for part in self._serves:
                moved |= part.turn()
        if self._computes:
            moved |= self._worker.turn()
        if moved:
            self._member.pulse()
        if self._decides:
            self._tell_progress(batch)
        return moved

    def _tell_progress(self, batch: Batch) -> None:
        now = time.perf_counter()
        if now - self._told > PROGRESS_S:
            done, clock = max(0, self._async_buffers.ordered(batch.epoch) - self._terms.workers), self.clock()
            rate = done / batch.live * batch.samples / max(now - clock.begun, PROGRESS_S)
            step = min(self._arena_sequencer.before + done, batch.live)
            self._report(Progress(batch.epoch, step, batch.live, rate))
            self._told = now

    # --- at rest -----------------------------------------------------------------------------------------------------

    def check_reproducible(self) -> None:
        self._model.check_reproducible()

    def evaluate(
        self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False, check: Check = unchecked
    ) -> np.ndarray:
        self._take_copy()
        return self._resting.evaluate(position, count, measure, tell, due=due, check=check)

    def _take_copy(self) -> None:
        """The masters' parameters, for an evaluation; nobody changes them then."""
        self._copy[...], self._copied_buffers[...] = self.params, self.buffers

    @property
    def at(self) -> tuple[int, bool]:
        return self._resting.at

    @property
    def first(self) -> bool:
        return self._resting.first

    def share(self, live: int) -> range:
        return range(0)  # who computes what is found out while it is done

    def halts_after(self, position: int) -> bool:
        halted = count_of(self._async_buffers.words[DONE], epoch_of(position)) == HALTED
        return halted or self._resting.halts_after(position)

    def epoch_sums(self) -> tuple[float, float]:
        return self._resting.epoch_sums()

    def times(self, epoch: int) -> list[dict[str, Any]]:
        waits = [f"wait_master_{number}_s" for number in range(self._terms.masters)]
        counts = [dict(zip((*COUNTS, *waits), row, strict=True)) for row in self._async_buffers.counts.tolist()]
        for number, busy_s in enumerate(self._async_buffers.busy.tolist()):
            counts[number]["busy_s"] = busy_s
        stale = staleness_stats(self._log(epoch), self.size).ranks
        rows = zip(self._resting.times(epoch), counts, stale, strict=True)
        return [times | count | found for times, count, found in rows]

    def epoch_extras(self, epoch: int) -> EpochExtras:
        return staleness_stats(self._log(epoch), self.size).record

    def _log(self, epoch: int) -> np.ndarray:
        return self._async_buffers.log[: self._async_buffers.ordered(epoch)]

    def clock(self) -> Clock:
        return self._resting.clock()

    def note_memory(self, nbytes: int) -> None:
        self._resting.note_memory(nbytes)

    def memory_bytes(self) -> int:
        return self._resting.memory_bytes()

    def contributions(self) -> np.ndarray:
        sent = [row["pushes"] for row in staleness_stats(self._log(self._epoch), self.size).ranks]
        return contributions_of(self._async_buffers.gradients, sent, self._model)
