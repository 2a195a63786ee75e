"""MessageMaster: owns a stretch of the parameters, receives gradients for it, and answers with what it has become.

The one idea: masters do what the sequencer's entries say, in their order. What a master sends a worker is a copy of its
stretch; it keeps it, for that is what the worker's next gradient is computed on.

    master = MessageMaster(comm, model, terms, options, params, buffers); master.follow(epoch, pushes)

Limits: the death of a rank ends the run.
"""

import time
from typing import final

import numpy as np

from unisono.comm.base import Communicator, Request
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.asynchronous.messages import tags
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.push_update import Places, PushUpdate, numbers_of
from unisono.strategies.asynchronous.sequencer import DROP, PUSH, Entry


@final
class MessageMaster:
    """Its number is its rank. `params` (padded) and `buffers` of the model; only its stretch of them is its own."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        terms: AsyncOptions,
        options: OptimizerOptions,
        params: np.ndarray,
        buffers: np.ndarray,
    ) -> None:
        low, high = terms.parts[comm.rank]
        self._comm, self._params, self._group, self._parts = comm, params[low:high], terms.group, terms.parts
        names = make(options).state_names
        self.whole = [np.zeros_like(params) for _ in names] if comm.rank == tags.SEQUENCER else []
        """The sequencer's: the optimizer's vectors in full, of which the other masters' parts are as of `gather`."""
        state = [vector[low:high] for vector in self.whole] or [np.zeros(high - low, np.float32) for _ in names]
        self._state = state
        collected = np.zeros(high - low, np.float32) if terms.rule.collects else None
        self._applying = PushUpdate(terms, options, high - low, state, collected)
        self._gradient = np.zeros(high - low, np.float32)
        workers = range(terms.masters, comm.size)
        self._copies = {rank: np.zeros(high - low, np.float32) for rank in workers}
        self._buffers = buffers if comm.rank == tags.SEQUENCER else buffers[:0]
        self._new_buffers = np.zeros(max(0, len(self._buffers) - model.fixed), np.float32)
        self._buffer_copies = {rank: self._buffers.copy() for rank in workers}
        self._sent: dict[int, list[Request]] = {rank: [] for rank in workers}
        self.busy_s = 0.0
        """Spent on receiving, updating and answering."""

    def follow(self, epoch: int, pushes: int) -> None:
        """Does what the sequencer tells, for an epoch."""
        entry = np.empty(len(Entry._fields), np.int64)
        while True:
            self._comm.recv(entry, tags.SEQUENCER, tags.ORDER)
            if entry[0] == tags.CLOSE:
                break
            self.obey(Entry(*entry.tolist()), epoch, pushes)
        self.settle()

    def obey(self, entry: Entry, epoch: int, pushes: int) -> None:
        """One entry."""
        begun, comm, rank = time.perf_counter(), self._comm, entry.rank
        if entry.kind in (PUSH, DROP):
            comm.recv(self._gradient, rank, tags.PART)
            if self._new_buffers.size:
                comm.recv(self._new_buffers, rank, tags.BUFFERS)
        places = Places(self._params, self._copies[rank] if rank >= 0 else self._params, self._params)
        self._applying.apply(entry, self._gradient, places, numbers_of(entry, epoch, pushes, self._group))
        if rank >= 0:
            self._answer(entry)
        self.busy_s += time.perf_counter() - begun

    def _answer(self, entry: Entry) -> None:
        comm, rank = self._comm, entry.rank
        for request in self._sent[rank]:
            request.wait()  # it came long ago, or the worker would not have pushed
        self._copies[rank][...] = self._params
        self._sent[rank] = [comm.isend(self._copies[rank], rank, tags.ANSWER)]
        if self._buffers.size:
            if entry.kind == PUSH:
                self._buffers[: len(self._new_buffers)] = self._new_buffers
            self._buffer_copies[rank][...] = self._buffers
            self._sent[rank].append(comm.isend(self._buffer_copies[rank], rank, tags.BUFFERS))

    def settle(self) -> None:
        """Everything that was sent has arrived."""
        for requests in self._sent.values():
            for request in requests:
                request.wait()
            requests.clear()

    def gather(self) -> None:
        """The sequencer gets the optimizer's vectors of all; called by every master, between epochs."""
        for vector in self.whole:
            for master, (low, high) in enumerate(self._parts):
                if master != tags.SEQUENCER:
                    self._comm.recv(vector[low:high], master, tags.STATE)
        for own in self._state if not self.whole else []:
            self._comm.send(own, tags.SEQUENCER, tags.STATE)

    def spread(self) -> None:
        """The opposite: each gets its part of what the sequencer has put back."""
        for vector in self.whole:
            for master, (low, high) in enumerate(self._parts):
                if master != tags.SEQUENCER:
                    self._comm.send(vector[low:high], master, tags.STATE)
        for own in self._state if not self.whole else []:
            self._comm.recv(own, tags.SEQUENCER, tags.STATE)
