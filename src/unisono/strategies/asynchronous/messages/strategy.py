"""AsyncMessages: asynchronous training over any communicator (MPI, gloo, shm), on one node or many.

The one idea: the same rules, orders, deals and log as in the arena, and the same bits; only that gradients and
parameters travel as messages. An epoch is one round; after it masters give everybody their parts, for evaluation.

    strategy = AsyncMessages(comm, model, options, terms, epochs=5, rng=generator(0, "init"))

Whoever is asked to end the run tells the sequencer with its next push; the rest of the epoch is left to who resumes it.
Snapshots are the first rank's, and are those of the arena: masters bring it what they hold, between epochs.

Limits: the death of a rank ends the run. Snapshots are made between epochs, or when asked to end. Parameters that a
push does not use have a gradient of zero.
"""

import time
from typing import Any, final

import numpy as np

from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import broadcast_object
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.arena_join import ArenaStart
from unisono.strategies.arena.state import PersistentArrays
from unisono.strategies.asynchronous.arena.buffers import COUNTS
from unisono.strategies.asynchronous.messages.message_master import MessageMaster
from unisono.strategies.asynchronous.messages.message_sequencer import MessageSequencer
from unisono.strategies.asynchronous.messages.message_worker import MessageWorker
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.sequencer import Entry
from unisono.strategies.asynchronous.staleness_stats import StalenessStats, contributions_of, staleness_stats
from unisono.strategies.base import Batch, Check, EpochExtras, Measure, NotFinite, StepResult, Tell, unchecked
from unisono.strategies.messages.base import ReplicaSnapshot, SnapshotMessageStrategy


@final
class AsyncMessages(SnapshotMessageStrategy):
    """One rank's side; ranks below `terms.masters` are masters, rank 0 is also the sequencer."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        options: OptimizerOptions,
        terms: AsyncOptions,
        epochs: int,
        rng: np.random.Generator,
    ) -> None:
        comm.agree("parameters, masters", model.layout.length, terms.masters)
        super().__init__(comm, model, epochs)
        self._model, self._terms = model, terms
        self.start(model, rng)
        model.bind(self.params, self.buffers)  # a worker's own copy; between epochs it is the masters'
        steps, missed = np.full((terms.pushes, 2), np.nan), np.zeros((2, len(model.layout.shapes)), np.int64)
        self._worker = self._master = self._sequencer = None
        state: list[np.ndarray] = []
        if comm.rank >= terms.masters:
            self._worker = MessageWorker(comm, model, terms, self.params, self.buffers, self._asked)
        else:
            self._master = MessageMaster(comm, model, terms, options, self.params, self.buffers)
            self._sequencer = (
                MessageSequencer(comm, terms, self._master, steps, self._asked) if comm.rank == 0 else None
            )
            state = self._master.whole
        self._own = ReplicaSnapshot(PersistentArrays([self.params, *state], self.buffers, steps, self.scores, missed))
        self._position, self._resumed = 0, False
        self._counted = np.zeros(len(COUNTS) + terms.masters)
        self._rows = np.zeros((comm.size, len(self._counted)))
        self._staleness_stats = StalenessStats(EpochExtras(), [])
        self._shares = np.zeros((comm.size, len(model.layout.shapes), 3))

    def _asked(self) -> bool:
        return self._own.asked

    def go_on(self, start: ArenaStart) -> None:
        """Instead of from the beginning, with what `start` puts back on the first rank. Called by every rank."""
        lasting = self._own.lasting
        broadcast_object(self._comm, lambda: start.put_back(lasting) if start.put_back is not None else None)
        for array in (self.params, lasting.buffers, lasting.steps, lasting.scores):
            self._comm.broadcast(array)
        if self._master is not None:
            self._master.spread()
        self._position = start.position
        self._resumed = not np.isfinite(lasting.steps).all()  # halted in the middle of the epoch that is next
        if not self._resumed:
            self._message_stats.go_on(lasting.steps.sum(axis=0)[None])

    @property
    def at(self) -> tuple[int, bool]:
        return self._position, True

    def left_at(self, position: int) -> int:
        return self._position

    def step(self, batch: Batch) -> StepResult:
        self._message_stats.begin()
        begun = time.perf_counter()
        data_s = compute_s = update_s = 0.0
        self._counted[:] = 0.0
        if self._worker is not None:
            worker = self._worker
            worker.forget()
            worker.epoch(batch)
            data_s, compute_s = worker.data_s, worker.compute_s
            self._counted[:] = (worker.clips, 0.0, *worker.waits_s)
        elif self._master is not None:
            self._master.busy_s = 0.0
            if self._sequencer is not None:
                self._sequencer.epoch(batch.epoch, batch.live, resumed=self._resumed)
            else:
                self._master.follow(batch.epoch, batch.live)
            update_s = self._counted[1] = self._master.busy_s
        wait_s = time.perf_counter() - begun - data_s - compute_s - update_s
        self._resumed = False
        found = self._agree(batch.position)
        self._message_stats.count(found, 0, (data_s, compute_s, wait_s, update_s))  # samples are counted by the log
        return found

    def _agree(self, position: int) -> StepResult:
        """What the sequencer found, for everybody; a loss that was no number as well, and whether the run is to end."""
        news, sequencer = np.zeros(8), self._sequencer
        if sequencer is not None:
            sums = self._own.lasting.steps.sum(axis=0) if sequencer.whole else (0.0, 0.0)
            news[:7] = (*sums, sequencer.whole, sequencer.trouble is not None, *(sequencer.trouble or (0, 0.0, 0)))
        news[7] = self._own.asked or (sequencer is not None and sequencer.halted)
        self._comm.all_reduce(news)  # where the sequencer speaks, the others have 0
        loss_sum, correct, whole, failed, batch, loss, staleness, asked = news.tolist()
        if failed:
            raise NotFinite(int(batch), loss, self._terms.cure(int(staleness)))
        self._position = position if whole else position - 1
        if asked:
            self._bring_together()
            self._own.requests.ask_to_halt()
            self._own.requests.decide(position, due=False)
        return StepResult(loss_sum, correct)

    def check_reproducible(self) -> None:
        self._model.check_reproducible()

    def evaluate(
        self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False, check: Check = unchecked
    ) -> np.ndarray:
        table = super().evaluate(position, count, measure, tell, due=due, check=check)
        self._position = position
        self._own.close_round(position, due=due)
        return table

    def _bring_together(self) -> None:
        """Every rank gets the masters' parameters, the first one their optimizer's state."""
        for master, (low, high) in enumerate(self._terms.parts):
            self._comm.broadcast(self.params[low:high], master)
        if self.buffers.size:
            self._comm.broadcast(self.buffers)
        if self._master is not None:
            self._master.gather()

    def _keep(self) -> None:
        """Every rank gets the masters' parameters; rank 0 what there is to tell."""
        self._bring_together()
        log = [] if self._sequencer is None else self._sequencer.log
        self._staleness_stats = staleness_stats(np.array(log, np.int64).reshape(-1, len(Entry._fields)), self.size)
        self._rows = self._comm.all_gather(self._counted)
        own = np.zeros_like(self.params) if self._worker is None else self._worker.gradient
        gradients = self._comm.gather(own)
        if gradients is not None:
            self._shares = contributions_of(
                gradients, [row["pushes"] for row in self._staleness_stats.ranks], self._model
            )

    def share(self, live: int) -> range:
        return range(0)  # who computes what is found out while it is done

    def times(self, epoch: int) -> list[dict[str, Any]]:
        names = (*COUNTS, *(f"wait_master_{number}_s" for number in range(self._terms.masters)))
        counts = (dict(zip(names, row, strict=True)) for row in self._rows.tolist())
        rows = zip(super().times(epoch), counts, self._staleness_stats.ranks, strict=True)
        return [times | count | found for times, count, found in rows]

    def epoch_extras(self, epoch: int) -> EpochExtras:
        return self._staleness_stats.record

    def contributions(self) -> np.ndarray:
        return self._shares
