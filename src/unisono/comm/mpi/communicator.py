"""MpiCommunicator: ranks that mpirun, srun or a batch system started, over any MPI that mpi4py finds.

Its one idea: a collective is two steps. First the ranks show each other a row of a few integers
(`comm/collective_check.py`) in a non-blocking all-gather that is polled against a clock: that is the time-out, and
the check of arguments. Then they enter MPI's blocking collective, which is tuned far better than its non-blocking
twin and now finds everybody there.

    mpirun -n 2 python -c "from unisono.comm.mpi.communicator import world; world().barrier()"

The library itself is in `library.py`, messages between two ranks are in `p2p.py`.

Limits:
- the first step takes about 5 microseconds between two ranks of a node. `checked=False` leaves it out where data move,
  and with it the time-out: a barrier in its place would cost nearly as much. It pays below some 10 KiB only;
- the second step has no time-out: a rank that dies there, or gave up just before the last one came, is noticed by
  mpirun, which ends the job, not by us;
- unless the program imported mpi4py earlier, MPI starts at thread level "serialized": threads must take turns;
- MPI cannot end in order while a rank is missing. A `CommTimeout` that nobody handles ends the whole job at once; a
  process that handled one and leaves waits for the others for 10 s, then the job is ended.
"""

import atexit
import signal
import sys
from collections.abc import Callable
from typing import final

import numpy as np

from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import ANY, DEFAULT_TIMEOUT_S, Array, Envelope, Request
from unisono.comm.checked_base import CheckedCommunicator
from unisono.comm.collective_check import ROW_WORDS, Row
from unisono.comm.mpi.library import MPI, abort, call, pieces, spec
from unisono.comm.mpi.missing_ranks import MissingRanks
from unisono.comm.mpi.p2p import MpiMessages
from unisono.errors import CommTimeout, RankLost, UnisonoError, UserError
from unisono.resources import usable_cores
from unisono.safe_print import print
from unisono.user_code.tracebacks import own_traceback

_TYPES = {
    np.dtype(name): kind
    for name, kind in {"float32": MPI.FLOAT, "float64": MPI.DOUBLE, "int32": MPI.INT32_T, "int64": MPI.INT64_T}.items()
}
_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN, "prod": MPI.PROD}
_SPINS = 100
"""Looks at a request before the first yield: some 20 microseconds. Where each rank has its core, 50 times as many."""
_FINALIZE_S = 10.0
"""How long a process that gave up on somebody waits for the others when it leaves."""


def world(timeout_s: float = DEFAULT_TIMEOUT_S, *, checked: bool = True) -> "MpiCommunicator":
    """All ranks that MPI started, in MPI's order."""
    return MpiCommunicator(MPI.COMM_WORLD, timeout_s, checked=checked)


def _finalize_in_time() -> None:
    """At the end of a process that gave up on somebody: MPI_Finalize would wait for the missing rank for ever."""
    if isinstance(getattr(sys, "last_value", None), CommTimeout):
        sys.stderr.flush()
        abort(1)  # nobody handled the error: the job has failed
    # MPI_Finalize lets no Python run meanwhile: the kernel has to end it. mpirun then ends the rest.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _FINALIZE_S)
    MPI.Finalize()
    signal.setitimer(signal.ITIMER_REAL, 0)


@final
class MpiCommunicator(CheckedCommunicator):
    """Works on duplicates of `comm`, so its messages never meet those of others. Called by every rank of `comm`."""

    transport = "mpi"

    def __init__(self, comm: MPI.Intracomm, timeout_s: float = DEFAULT_TIMEOUT_S, *, checked: bool = True) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size(), timeout_s, checked=checked)
        self._spins = _SPINS if self.size > usable_cores() else 50 * _SPINS
        self._unfinished: list[object] = []
        self._comm = self._duplicate(comm)
        self._side = self._duplicate(self._comm)
        self._mail = MpiMessages(self._comm, self._wait_for)
        self._notices = MissingRanks(MpiMessages(self._side, self._wait_for), self.rank, self.size)
        self._number = 0
        self._row = np.zeros(ROW_WORDS, np.int64)
        self._rows = np.zeros((self.size, ROW_WORDS), np.int64)
        self._exchange = ([self._row, ROW_WORDS, MPI.INT64_T], [self._rows, ROW_WORDS, MPI.INT64_T])

    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        self.check_message(array, dest, "dest", tag)
        return self._mail.isend(array, dest, tag)

    def irecv(self, array: Array, source: int, tag: int = 0) -> Request:
        self.check_message(array, source, "source", tag)
        return self._mail.irecv(array, source, tag)

    def probe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        self.check_source(source)
        return self._mail.probe(source, tag)

    def split(self, colour: int) -> "MpiCommunicator":
        colours = self.gather_colours(colour)
        # MPI wants a colour of 32 bits; the first rank that has it always fits.
        part = call(self._comm.Split, colours.index(colours[self.rank]), self.rank)
        made = MpiCommunicator(part, self.timeout_s, checked=self.checked)
        part.Free()
        return made

    def close(self) -> None:
        # The standard calls Free collective but expects it to be local; in Open MPI and MPICH it is, so one rank alone
        # does not hang. A broken communicator has requests under way: those are left to MPI_Finalize.
        if not self.state and not MPI.Is_finalized():
            self._comm.Free()
            self._side.Free()
        self.state = self.state or "closed"

    # -- what CheckedCommunicator needs

    def _show(self, what: str, mine: Row) -> list[Row]:
        self._number = number = self._number + 1
        self._row[:] = mine
        request: MPI.Request = call(self._comm.Iallgather, *self._exchange)
        if not self._spin(request.Test):
            look = self._notices.watch(number, self.timeout_s)

            def arrived() -> bool:
                look()
                return request.Test()

            if not wait_until(arrived, self.timeout_s):
                raise self._abandon(request, f"{what} (collective {number})", self._notices.missing(number))
        return list(map(tuple, self._rows.tolist()))

    def _reduce(self, flat: Array, op: str) -> None:
        if flat.dtype not in _TYPES:
            raise UserError(
                f"MPI has no type for {flat.dtype.name}, so it cannot reduce this array",
                hint="use --allreduce ring (it only sends and receives), the transport shm or gloo, or float32",
            )
        for piece in pieces(flat):
            call(self._comm.Allreduce, MPI.IN_PLACE, [piece, piece.size, _TYPES[flat.dtype]], _OPS[op])

    def _broadcast(self, data: Array, root: int) -> None:
        call(self._comm.Bcast, spec(data, data.size), root)

    def _all_gather(self, data: Array, out: Array) -> None:
        call(self._comm.Allgather, spec(data, data.size), spec(out, data.size))

    def _gather(self, data: Array, out: Array | None, root: int) -> None:
        call(self._comm.Gather, spec(data, data.size), None if out is None else spec(out, data.size), root)

    def abort_peers(self, error: BaseException) -> None:
        if isinstance(error, SystemExit) and not error.code:
            return
        # The others would wait for this rank until their time-out, and MPI_Finalize here for them.
        if isinstance(error, UnisonoError):
            print(f"unisono: {error}", file=sys.stderr, flush=True)
        elif not isinstance(error, SystemExit):
            print(own_traceback(error), end="", file=sys.stderr, flush=True)
        if isinstance(error, RankLost):
            abort(128 + signal.SIGKILL)  # what the lost one most often left with; launchers tell one code of several
        abort(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)

    def progress(self) -> None:
        call(self._comm.Iprobe, MPI.ANY_SOURCE, MPI.ANY_TAG)

    def _duplicate(self, comm: MPI.Intracomm) -> MPI.Intracomm:
        made, request = comm.Idup()
        if not wait_until(request.Test, self.timeout_s):
            raise self._abandon((made, request), "the making of a communicator", [])
        return made

    def _wait_for(self, request: Request, verb: str, peer: int, tag: int) -> None:
        """Polls a send or receive until it is done or time is up."""
        if not (self._spin(request.test) or wait_until(request.test, self.timeout_s)):
            raise self._abandon(request, f"{verb} rank {peer} (tag {tag})", [peer])

    def _spin(self, done: Callable[[], bool]) -> bool:
        return any(done() for _ in range(self._spins))

    def _abandon(self, unfinished: object, what: str, missing: list[int]) -> CommTimeout:
        # MPI may still write into the arrays of a request that is not done: they must outlive it.
        self._unfinished.append(unfinished)
        atexit.unregister(_finalize_in_time)
        atexit.register(_finalize_in_time)
        return self.give_up(what, missing)
