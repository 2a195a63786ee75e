"""Communicator: the one small interface over which everything that moves arrays is written.

A communicator knows its `rank` and `size` and moves NumPy arrays; it knows no models. Arrays are C-contiguous and are
sent as they lie in memory; receivers give the array to be filled, so nothing is allocated, pickled or guessed.

    comm.all_reduce(gradients)              # in place, sum
    comm.send(x, dest=1); comm.recv(y, source=0)

Rules that hold for every backend:
- collectives are called by all ranks in the same order, with arrays of the same length and type; if they differ, every
  rank raises `Mismatch`, nobody hangs;
- every call that blocks gives up after `timeout_s` with a `CommTimeout` that names the ranks which did not arrive.
  After that, or after a `Mismatch` in a collective, the communicator is broken: only `close` may follow;
- where the others go on when a rank dies (`World.share` under `unisono.run`), `rank` and `size` change with that; a
  collective that needs a dead rank's part raises `RankLost` on all others, after which the next one works:
  `comm/shm/communicator.py`;
- messages between two ranks with one tag arrive in the order in which they were sent. They are bytes: a receiver must
  know the type, and collectives compare lengths and types, not shapes;
- `op` is one of `OPS`; the result is the same, bit for bit, on every rank.

Limits: one thread per communicator. A message to oneself is an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np

from unisono.errors import CommError, Mismatch, UserError, unknown_name

Array: TypeAlias = np.ndarray

ANY = -1
"""Matches any source or any tag in `probe`."""

COLLECTIVE_TAG = 2**15 - 1
"""The tag of the messages that all-reduce algorithms are made of: not for anybody else, and never told by `probe`."""

OPS: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}

DTYPES = ("float32", "float64", "int32", "int64", "float16", "bfloat16")
"""What collectives reduce; bfloat16 is the NumPy type that the package ml_dtypes registers. The last two only where a
backend can. Point-to-point messages may be of any type without Python objects in it."""

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_JOIN_S = 60.0

AGREE_WORDS = 4
"""How many integers `agree` compares at most."""


@dataclass(frozen=True)
class Envelope:
    """What `probe` tells of a message that waits to be received."""

    source: int
    tag: int
    nbytes: int


class Request(ABC):
    """A send or receive under way. Its array belongs to the communicator until `wait` returned or `test` said True."""

    @abstractmethod
    def test(self) -> bool:
        """Whether it is done; never blocks."""

    @abstractmethod
    def wait(self) -> None:
        """Blocks until it is done."""


class Communicator(ABC):
    """See the module's docstring. Backends are final classes; behaviour is added by wrapping (`wrappers.py`)."""

    rank: int
    size: int
    timeout_s: float
    transport: str
    address: str = ""
    """By which others reach this rank's machine, where the backend knows."""
    join_s: float = DEFAULT_JOIN_S
    """How long a further group of these ranks may take to connect (--join-timeout)."""

    # -- point to point

    @abstractmethod
    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        """Starts sending; `array` must not change until the request is done."""

    @abstractmethod
    def irecv(self, array: Array, source: int, tag: int = 0) -> Request:
        """Starts receiving into `array`, which must have exactly the length of the message."""

    @abstractmethod
    def probe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        """A message that `recv` would get at once, or None; never blocks. Fair: looks at every source in turn."""

    def send(self, array: Array, dest: int, tag: int = 0) -> None:
        """Blocks until `array` may be changed again."""
        self.isend(array, dest, tag).wait()

    def recv(self, array: Array, source: int, tag: int = 0) -> None:
        """Blocks until `array` is filled."""
        self.irecv(array, source, tag).wait()

    def sendrecv(self, outgoing: Array, dest: int, incoming: Array, source: int, tag: int = 0) -> None:
        """Sends and receives at the same time: a ring of these does not lock up. The two must not overlap."""
        arriving = self.irecv(incoming, source, tag)
        leaving = self.isend(outgoing, dest, tag)
        arriving.wait()
        leaving.wait()

    # -- collectives

    @abstractmethod
    def all_reduce(self, array: Array, op: str = "sum") -> None:
        """In place; the backend's own algorithm ("native")."""

    @abstractmethod
    def broadcast(self, array: Array, root: int = 0) -> None:
        """Fills `array` on every rank with that of `root`."""

    @abstractmethod
    def all_gather(self, array: Array) -> Array:
        """The arrays of all ranks: shape (size, *array.shape)."""

    @abstractmethod
    def gather(self, array: Array, root: int = 0) -> Array | None:
        """Like `all_gather`, on `root` alone; None elsewhere."""

    @abstractmethod
    def barrier(self) -> None:
        """Returns when every rank has called it."""

    @abstractmethod
    def agree(self, what: str, *values: int) -> None:
        """Every rank gives the same `values` (at most `AGREE_WORDS`), or every rank raises `Mismatch`."""

    # -- groups

    @abstractmethod
    def split(self, colour: int) -> "Communicator":
        """A new communicator for the ranks that gave the same `colour` (0 or more), in the same order."""

    def split_by_node(self) -> "Communicator":
        """A new communicator for the ranks on this rank's node: those that can share memory."""
        from unisono.comm.topology.shared_machine import node_colour

        return self.split(node_colour(self))

    def progress(self) -> None:  # noqa: B027  (nothing to do is a good answer)
        """Moves messages under way, where that needs this rank's help; for those who wait elsewhere meanwhile."""

    def abort_peers(self, error: BaseException) -> None:  # noqa: B027
        """Called when this rank leaves because of `error`: lets the others know, where the backend can."""

    def announce_failure(self, words: bytes) -> None:  # noqa: B027
        """Tells the others a few words (up to 1,600 bytes) before this rank leaves, where the backend can."""

    def failure_notices(self) -> list[bytes]:
        """What others have told before they left, by rank; also of a communicator that is broken."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Gives back what the communicator holds; may be called twice, and by one rank alone."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reduction(op: str) -> np.ufunc:
    """The NumPy function of an `op`, or a `UserError` that lists the valid ones."""
    if op not in OPS:
        raise unknown_name("op", op, OPS)
    return OPS[op]


def dtype_code(dtype: np.dtype) -> int:
    """A number for a dtype that is the same on every rank, for `agree`; refuses types that cannot be reduced."""
    if dtype.name not in DTYPES:
        raise UserError(f"arrays of {dtype.name} cannot be reduced", hint=f"convert to one of {', '.join(DTYPES)}")
    return DTYPES.index(dtype.name)


def op_code(op: str) -> int:
    reduction(op)
    return list(OPS).index(op)


def check_array(array: Array, *, writable: bool = True) -> None:
    """Refuses what cannot be moved as plain memory."""
    if not isinstance(array, np.ndarray):
        raise UserError(f"expected a NumPy array, got {type(array).__name__}", hint="pass numpy.asarray(x)")
    if array.dtype.hasobject:
        raise UserError(f"arrays of Python objects ({array.dtype}) cannot be sent", hint="use a plain numeric dtype")
    if not array.flags.c_contiguous:
        raise UserError(
            f"the array (shape {array.shape}, strides {array.strides}) is not contiguous",
            hint="pass numpy.ascontiguousarray(x); results would not land in a copy",
        )
    if writable and not array.flags.writeable:
        raise UserError(f"the array (shape {array.shape}) is read-only", hint="pass a copy")


def check_peer(comm: Communicator, peer: int, role: str) -> None:
    """Refuses a rank outside the world, and oneself."""
    if not 0 <= peer < comm.size:
        raise UserError(f"{role} {peer} is outside the world of {comm.size} ranks", hint=f"0 to {comm.size - 1}")
    if peer == comm.rank and role != "root":
        raise UserError(f"{role} {peer} is this very rank", hint="copy the array instead")


def check_tag(tag: int) -> None:
    """Tags are small non-negative integers on every backend."""
    if not 0 <= tag <= COLLECTIVE_TAG:
        raise UserError(f"tag {tag} is out of range", hint=f"0 to {COLLECTIVE_TAG - 1}")


def matches(wanted: int, found: int) -> bool:
    """Whether `probe` for the tag `wanted` may tell of a message with the tag `found`."""
    return found == wanted or (wanted == ANY and found != COLLECTIVE_TAG)


def disagreement(what: str, rows: Sequence[tuple[int | str, ...]], ranks: Sequence[int] = ()) -> Mismatch:
    """The error that every rank raises when the `rows` (one per rank, or per one of `ranks`) are not all equal."""
    groups: dict[tuple[int | str, ...], list[int]] = {}
    for rank, row in zip(ranks or range(len(rows)), rows, strict=True):
        groups.setdefault(row, []).append(rank)
    found = "; ".join(f"{', '.join(map(str, row))} on rank {', '.join(map(str, who))}" for row, who in groups.items())
    return Mismatch(
        f"ranks disagree on {what}: {found}", hint="call it with equal arguments, in equal order, on every rank"
    )


def wrong_length(rank: int, source: int, tag: int, found: int, expected: int) -> CommError:
    """The error for a message that does not fit the array it should fill."""
    return CommError(
        f"a message of {found} bytes came from rank {source} (tag {tag}), but the array given has {expected}",
        hint="make the two arrays equally long, or probe for the length first",
        rank=rank,
    )
