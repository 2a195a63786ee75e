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
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.apart import Apart
from unisono.strategies.asynchronous.boxes import COUNTS
from unisono.strategies.asynchronous.clerk import Entry
from unisono.strategies.asynchronous.message_clerk import MessageClerk
from unisono.strategies.asynchronous.message_master import MessageMaster
from unisono.strategies.asynchronous.message_worker import MessageWorker
from unisono.strategies.asynchronous.remarks import Remarks, contributions_of, remarks_on
from unisono.strategies.asynchronous.terms import Terms
from unisono.strategies.base import Batch, NotFinite, StepResult


@final
class AsyncMessages(Apart):
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
        super().__init__(comm, model, epochs)
        self._model, self._terms = model, terms
        self.start(model, rng)
        model.bind(self.params, self.buffers)  # a worker's own copy; between epochs it is the masters'
        self._worker = self._master = self._clerk = None
        if comm.rank >= terms.masters:
            self._worker = MessageWorker(comm, model, terms, self.params, self.buffers)
        else:
            self._master = MessageMaster(comm, model, terms, options, self.params, self.buffers)
            self._clerk = MessageClerk(comm, terms, self._master) if comm.rank == 0 else None
        self._counted = np.zeros(len(COUNTS) + terms.masters)
        self._rows = np.zeros((comm.size, len(self._counted)))
        self._remarks = Remarks({}, [])
        self._shares = np.zeros((comm.size, len(model.layout.shapes), 3))

    def step(self, batch: Batch) -> StepResult:
        self._ledger.begin()
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
            if self._clerk is not None:
                self._clerk.epoch(batch.epoch, batch.live)
            else:
                self._master.follow(batch.epoch, batch.live)
            update_s = self._counted[1] = self._master.busy_s
        wait_s = time.perf_counter() - begun - data_s - compute_s - update_s
        found = self._agree()
        self._ledger.count(found, 0, (data_s, compute_s, wait_s, update_s))  # samples are counted by the log
        return found

    def _agree(self) -> StepResult:
        """What the clerk found, for everybody; a loss that was no number as well."""
        told, clerk = np.zeros(6), self._clerk
        if clerk is not None:
            told[:] = (*clerk.sums, clerk.trouble is not None, *(clerk.trouble or (0, 0.0, 0)))
        self._comm.broadcast(told)
        loss_sum, correct, failed, batch, loss, staleness = told.tolist()
        if failed:
            raise NotFinite(int(batch), loss, self._terms.cure(int(staleness)))
        return StepResult(loss_sum, correct)

    def _keep(self) -> None:
        """Every rank gets the masters' parameters; rank 0 what there is to tell."""
        for master, (low, high) in enumerate(self._terms.parts):
            self._comm.broadcast(self.params[low:high], master)
        if self.buffers.size:
            self._comm.broadcast(self.buffers)
        log = [] if self._clerk is None else self._clerk.log
        self._remarks = remarks_on(np.array(log, np.int64).reshape(-1, len(Entry._fields)), self.size)
        self._rows = self._comm.all_gather(self._counted)
        own = np.zeros_like(self.params) if self._worker is None else self._worker.gradient
        gradients = self._comm.gather(own)
        if gradients is not None:
            self._shares = contributions_of(gradients, [row["pushes"] for row in self._remarks.ranks], self._model)

    def share(self, live: int) -> range:
        return range(0)  # who computes what is found out while it is done

    def times(self, epoch: int) -> list[dict[str, Any]]:
        names = (*COUNTS, *(f"wait_master_{number}_s" for number in range(self._terms.masters)))
        counts = (dict(zip(names, row, strict=True)) for row in self._rows.tolist())
        rows = zip(super().times(epoch), counts, self._remarks.ranks, strict=True)
        return [times | count | found for times, count, found in rows]

    def remarks(self, epoch: int) -> dict[str, Any]:
        return dict(self._remarks.record)

    def contributions(self) -> np.ndarray:
        return self._shares
