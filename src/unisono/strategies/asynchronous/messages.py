"""AsyncMessages: asynchronous training over any communicator (MPI, gloo, shm), on one node or many.

The one idea: the same rules, orders, deals and log as in the arena, and the same bits; only that gradients and
parameters travel as messages. An epoch is one round; after it masters give everybody their parts, for evaluation.

    strategy = AsyncMessages(comm, model, options, terms, epochs=5, rng=generator(0, "init"))

Limits: the death of a rank ends the run; no snapshots. Parameters that a push does not use have a gradient of zero.
"""

import time
from typing import Any, final

import numpy as np

from unisono.comm.base import Communicator
from unisono.data.shards import shards_of_rank
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.asynchronous.boxes import COUNTS
from unisono.strategies.asynchronous.clerk import Entry
from unisono.strategies.asynchronous.message_clerk import MessageClerk
from unisono.strategies.asynchronous.message_master import MessageMaster
from unisono.strategies.asynchronous.message_worker import MessageWorker
from unisono.strategies.asynchronous.remarks import Remarks, contributions_of, remarks_on
from unisono.strategies.asynchronous.terms import Terms
from unisono.strategies.base import Batch, Clock, Measure, NotFinite, StepResult, Strategy, Tell
from unisono.strategies.ledger import Ledger
from unisono.strategies.shared import padded


@final
class AsyncMessages(Strategy):
    """One rank's side; ranks below `terms.masters` are masters, rank 0 is also the clerk."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        options: OptimizerOptions,
        terms: Terms,
        epochs: int,
        rng: np.random.Generator,
    ) -> None:
        comm.agree("parameters, masters", model.layout.length, terms.masters)
        self.rank, self.size = comm.rank, comm.size
        self._comm, self._model, self._terms = comm, model, terms
        self.params = np.zeros(padded(model.layout.length), np.float32)
        self.buffers = np.zeros(model.buffers_layout.length, np.float32)
        self.scores = np.zeros((epochs + 1, 3))
        self._ledger = Ledger(comm, model)
        model.init(self.params[: model.layout.length], self.buffers, rng)
        model.bind(self.params, self.buffers)  # a worker's own copy; between epochs it is the masters'
        self._worker = self._master = self._clerk = None
        if comm.rank >= terms.masters:
            self._worker = MessageWorker(comm, model, terms, self.params, self.buffers)
        else:
            self._master = MessageMaster(comm, model, terms, options, self.params, self.buffers)
            self._clerk = MessageClerk(comm, terms, self._master) if comm.rank == 0 else None
        self._sums, self._counts = np.zeros(2), np.zeros((comm.size, len(COUNTS) + terms.masters))
        self._remarks = Remarks({}, [])
        self._shares = np.zeros((comm.size, len(model.layout.shapes), 3))

    # --- an epoch ----------------------------------------------------------------------------------------------------

    def step(self, batch: Batch) -> StepResult:
        self._ledger.begin()
        begun = time.perf_counter()
        data_s = compute_s = update_s = 0.0
        mine = np.zeros(self._counts.shape[1])
        if self._worker is not None:
            worker = self._worker
            worker.forget()
            worker.epoch(batch)
            data_s, compute_s = worker.data_s, worker.compute_s
            mine[:] = (worker.clips, 0.0, *worker.waits_s)
        elif self._master is not None:
            self._master.busy_s = 0.0
            if self._clerk is not None:
                self._clerk.epoch(batch.epoch, batch.live)
            else:
                self._master.follow(batch.epoch, batch.live)
            update_s = mine[1] = self._master.busy_s
        wait_s = time.perf_counter() - begun - data_s - compute_s - update_s
        self._ledger.end()
        self._check()
        found = self._share_sums()
        self._gather_params()
        self._counts = self._comm.all_gather(mine)
        self._gather_log()
        self._gather_shares()
        samples = self._remarks.ranks[self.rank]["samples"] if self._clerk is not None else 0
        self._ledger.count(found, samples, (data_s, compute_s, wait_s, update_s))
        return found

    def _check(self) -> None:
        """Everybody learns of a loss that was no number."""
        told = np.zeros(4)
        if self._clerk is not None and self._clerk.trouble is not None:
            told[:] = (1.0, *self._clerk.trouble)
        self._comm.broadcast(told)
        if told[0]:
            raise NotFinite(int(told[1]), float(told[2]), self._terms.cure(int(told[3])))

    def _share_sums(self) -> StepResult:
        if self._clerk is not None:
            self._sums[:] = self._clerk.sums
        self._comm.broadcast(self._sums)
        loss_sum, correct = self._sums.tolist()
        return StepResult(loss_sum, correct)

    def _gather_params(self) -> None:
        """Every rank gets the masters' parameters: for evaluation, and on rank 0 for keeping."""
        for master, (low, high) in enumerate(self._terms.parts):
            self._comm.broadcast(self.params[low:high], master)
        if self.buffers.size:
            self._comm.broadcast(self.buffers)

    def _gather_log(self) -> None:
        """What the log says, where there is one; elsewhere nobody asks."""
        log = [] if self._clerk is None else self._clerk.log
        self._remarks = remarks_on(np.array(log, np.int64).reshape(-1, len(Entry._fields)), self.size)

    def _gather_shares(self) -> None:
        own = np.zeros_like(self.params) if self._worker is None else self._worker.gradient
        rows = self._comm.gather(own)
        if rows is not None:
            self._shares = contributions_of(rows, [row["pushes"] for row in self._remarks.ranks], self._model)

    # --- at rest -----------------------------------------------------------------------------------------------------

    def survey(self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False) -> np.ndarray:
        table = np.zeros((count, 2))
        for number in shards_of_rank(count, self.size, self.rank):
            table[number] = measure(number)
        if count:
            self._comm.all_reduce(table)  # adds zeros, exactly
        if self._ledger.gather():
            tell(table)
        self._comm.broadcast(self.scores)  # which `tell` may have filled
        return table

    @property
    def at(self) -> tuple[int, bool]:
        return 0, True

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def hosts(self) -> list[str]:
        return self._ledger.hosts

    def share(self, live: int) -> range:
        return range(0)  # who computes what is found out while it is done

    def halts_after(self, position: int) -> bool:
        return False

    def epoch_sums(self) -> tuple[float, float]:
        loss_sum, correct = self._sums.tolist()
        return loss_sum, correct

    def times(self, epoch: int) -> list[dict[str, Any]]:
        names = (*COUNTS, *(f"wait_master_{number}_s" for number in range(self._terms.masters)))
        counts = (dict(zip(names, row, strict=True)) for row in self._counts.tolist())
        rows = zip(self._ledger.times(), counts, self._remarks.ranks, strict=True)
        return [times | count | found for times, count, found in rows]

    def remarks(self, epoch: int) -> dict[str, Any]:
        return dict(self._remarks.record)

    def clock(self) -> Clock:
        return self._ledger.clock()

    def note_memory(self, nbytes: int) -> None:
        self._ledger.note_memory(nbytes)

    def memory_bytes(self) -> int:
        return self._ledger.memory_bytes()

    def contributions(self) -> np.ndarray:
        return self._shares
