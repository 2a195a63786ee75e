"""MpiCommunicator: ranks that mpirun, srun or a batch system started, over any MPI that mpi4py finds.

Its one idea: a collective is two steps. First the ranks show each other a row of a few integers (`arrival.py`) in a
non-blocking all-gather that is polled against a clock: that is the time-out, and the check of arguments. Then they
enter MPI's blocking collective, which is tuned far better than its non-blocking twin and now finds everybody there.

    mpirun -n 2 python -c "from unisono.comm.mpi import world; world().barrier()"

Receives never hand MPI an array before the length of the message is known (a matched probe comes first): Open MPI 5
writes past the end of an array that is shorter than a large message from the same node.

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
from collections import deque
from collections.abc import Callable
from typing import Any, final

import mpi4py
import numpy as np

from unisono.arena.waiting import wait_until
from unisono.comm.arrival import ROW_WORDS, Row
from unisono.comm.base import ANY, DEFAULT_TIMEOUT_S, Array, Envelope, Request, matches, wrong_length
from unisono.comm.checked import CheckedCommunicator, as_bytes
from unisono.comm.notices import Notices
from unisono.errors import CommError, CommTimeout, RankLost, UnisonoError, UserError
from unisono.resources import usable_cores
from unisono.tracebacks import told

# Locks around every MPI call are dear at small messages, and a communicator belongs to one thread anyway.
mpi4py.rc.thread_level = "serialized"

from mpi4py import MPI  # noqa: E402

_TYPES = {
    np.dtype(name): kind
    for name, kind in {"float32": MPI.FLOAT, "float64": MPI.DOUBLE, "int32": MPI.INT32_T, "int64": MPI.INT64_T}.items()
}
_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN, "prod": MPI.PROD}
_PIECE_BYTES = 2**30
"""MPI-3 counts in 32-bit integers, and implementations multiply them: longer arrays go in pieces or blocks."""

_BLOCK_BYTES = 2**20
_SPINS = 100
_FINALIZE_S = 10.0
"""Looks at a request before the first yield: some 20 microseconds. Where each rank has its core, 50 times as many."""


def world(timeout_s: float = DEFAULT_TIMEOUT_S, *, checked: bool = True) -> "MpiCommunicator":
    """All ranks that MPI started, in MPI's order."""
    return MpiCommunicator(MPI.COMM_WORLD, timeout_s, checked=checked)


def world_size() -> int:
    """How many ranks MPI believes it started: 1 when this process was started without it."""
    return MPI.COMM_WORLD.Get_size()


def library() -> str:
    """Which MPI it is: Open MPI, MPICH; empty: another one."""
    return next((name for name in ("Open MPI", "MPICH") if library_version().startswith(name)), "")


def library_version() -> str:
    """As it calls itself: 'Open MPI v5.0.11'; of MPICH without the long list that follows."""
    return " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())


def abort(exit_code: int) -> None:
    """Ends every rank of the job at once, also those that hang."""
    MPI.COMM_WORLD.Abort(exit_code)


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
        self._mail = _Mail(self._comm, self)
        self._notices = Notices(_Mail(self._side, self), self.rank, self.size)
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
        part = _call(self._comm.Split, colours.index(colours[self.rank]), self.rank)
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

    def wait_for(self, request: Request, verb: str, peer: int, tag: int) -> None:
        """Polls a send or receive until it is done or time is up."""
        if not (self._spin(request.test) or wait_until(request.test, self.timeout_s)):
            raise self._abandon(request, f"{verb} rank {peer} (tag {tag})", [peer])

    # -- what CheckedCommunicator needs

    def _show(self, what: str, mine: Row) -> list[Row]:
        self._number = number = self._number + 1
        self._row[:] = mine
        request: MPI.Request = _call(self._comm.Iallgather, *self._exchange)
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
        step = _PIECE_BYTES // flat.itemsize
        for start in range(0, flat.size, step):
            piece = flat[start : start + step]
            _call(self._comm.Allreduce, MPI.IN_PLACE, [piece, piece.size, _TYPES[flat.dtype]], _OPS[op])

    def _broadcast(self, data: Array, root: int) -> None:
        _call(self._comm.Bcast, _spec(data, data.size), root)

    def _all_gather(self, data: Array, out: Array) -> None:
        _call(self._comm.Allgather, _spec(data, data.size), _spec(out, data.size))

    def _gather(self, data: Array, out: Array | None, root: int) -> None:
        _call(self._comm.Gather, _spec(data, data.size), None if out is None else _spec(out, data.size), root)

    def desert(self, error: BaseException) -> None:
        if isinstance(error, SystemExit) and not error.code:
            return
        # The others would wait for this rank until their time-out, and MPI_Finalize here for them.
        if isinstance(error, UnisonoError):
            print(f"unisono: {error}", file=sys.stderr, flush=True)
        elif not isinstance(error, SystemExit):
            print(told(error), end="", file=sys.stderr, flush=True)
        if isinstance(error, RankLost):
            abort(128 + signal.SIGKILL)  # what the lost one most often left with; launchers tell one code of several
        abort(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)

    def progress(self) -> None:
        _call(self._comm.Iprobe, MPI.ANY_SOURCE, MPI.ANY_TAG)

    def _duplicate(self, comm: MPI.Intracomm) -> MPI.Intracomm:
        made, request = comm.Idup()
        if not wait_until(request.Test, self.timeout_s):
            raise self._abandon((made, request), "the making of a communicator", [])
        return made

    def _spin(self, done: Callable[[], bool]) -> bool:
        return any(done() for _ in range(self._spins))

    def _abandon(self, unfinished: object, what: str, missing: list[int]) -> CommTimeout:
        # MPI may still write into the arrays of a request that is not done: they must outlive it.
        self._unfinished.append(unfinished)
        atexit.unregister(_finalize_in_time)
        atexit.register(_finalize_in_time)
        return self.give_up(what, missing)


@final
class _Mail:
    """The messages of one MPI communicator."""

    def __init__(self, comm: MPI.Intracomm, owner: MpiCommunicator) -> None:
        self._comm = comm
        self._owner = owner
        self._wanted: dict[tuple[int, int], deque[_Receiving]] = {}

    def isend(self, array: Array, dest: int, tag: int) -> "_Sending":
        data = as_bytes(array)
        return _Sending(self._owner, _call(self._comm.Isend, _spec(data, data.size), dest, tag), dest, tag)

    def irecv(self, array: Array, source: int, tag: int) -> "_Receiving":
        receiving = _Receiving(self._owner, self, as_bytes(array), source, tag)
        self._wanted.setdefault((source, tag), deque()).append(receiving)
        return receiving

    def probe(self, source: int, tag: int) -> Envelope | None:
        for pair in [pair for pair, queue in self._wanted.items() if queue]:
            self.match(*pair)
        status = MPI.Status()
        wild = (MPI.ANY_SOURCE if source == ANY else source, MPI.ANY_TAG if tag == ANY else tag)
        # A message of a collective that others have entered already may hide one behind it until we enter, too.
        if not _call(self._comm.Iprobe, *wild, status) or not matches(tag, status.Get_tag()):
            return None
        return Envelope(status.Get_source(), status.Get_tag(), status.Get_elements(MPI.BYTE))

    def match(self, source: int, tag: int) -> None:
        """Gives messages that have come to the receives that were posted for them, oldest first."""
        queue = self._wanted[source, tag]
        status = MPI.Status()
        while queue and (message := _call(self._comm.Improbe, source, tag, status)) is not None:
            queue.popleft().start(message, status.Get_elements(MPI.BYTE))


@final
class _Sending(Request):
    def __init__(self, owner: MpiCommunicator, request: MPI.Request, dest: int, tag: int) -> None:
        self._owner, self._request, self._dest, self._tag = owner, request, dest, tag

    def test(self) -> bool:
        return bool(_call(self._request.Test))

    def wait(self) -> None:
        self._owner.wait_for(self, "a send to", self._dest, self._tag)


@final
class _Receiving(Request):
    def __init__(self, owner: MpiCommunicator, mail: _Mail, data: Array, source: int, tag: int) -> None:
        self._owner, self._mail, self._data, self._source, self._tag = owner, mail, data, source, tag
        self._request: MPI.Request | None = None
        self._found = data.size

    def start(self, message: MPI.Message, nbytes: int) -> None:
        """Takes the message, even one that does not fit: its sender shall not wait for ever."""
        self._found = nbytes
        target = self._data if nbytes == self._data.size else np.empty(nbytes, np.uint8)
        self._request = _call(message.Irecv, _spec(target, nbytes))

    def test(self) -> bool:
        if self._request is None:
            self._mail.match(self._source, self._tag)
        if self._request is None or not _call(self._request.Test):
            return False
        if self._found != self._data.size:
            raise wrong_length(self._owner.rank, self._source, self._tag, self._found, self._data.size)
        return True

    def wait(self) -> None:
        self._owner.wait_for(self, "a receive from", self._source, self._tag)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except MPI.Exception as error:
        raise CommError(f"rank {MPI.COMM_WORLD.Get_rank()}: {error}", hint="MPI's own messages may say more") from error


def _spec(data: Array, nbytes: int) -> list[Any]:
    """What mpi4py takes for a buffer: one item of `nbytes` per rank."""
    if nbytes <= _PIECE_BYTES:
        return [data, nbytes, MPI.BYTE]
    block = MPI.BYTE.Create_contiguous(_BLOCK_BYTES)
    blocks = block.Create_contiguous(nbytes // _BLOCK_BYTES)
    whole = nbytes // _BLOCK_BYTES * _BLOCK_BYTES
    item = MPI.Datatype.Create_struct([1, nbytes - whole], [0, whole], [blocks, MPI.BYTE]).Commit()
    block.Free()
    blocks.Free()
    return [data, 1, item]
