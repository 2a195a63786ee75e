"""CheckedCommunicator: what backends that bring their own collectives have in common, written once.

Its one idea: every collective first checks this rank's arguments, then lets all ranks show a row of them to each other
(`collective_check.py`), and only then calls the backend, with flat arrays that are never empty. So a backend is left
with the five verbs below and with messages; MPI and torch.distributed are such backends.

    comm.all_reduce(x)        # check -> _show(row) -> _reduce(x)

With `checked=False` the four collectives that move data skip the rows, for loops whose shapes are known. What is lost
with the mismatch check (part of the time-out, the names of missing ranks) each backend says in its docstring.
"""

from abc import abstractmethod

import numpy as np

from unisono.comm.base import ANY, Array, Communicator, check_array, check_peer, check_tag, op_code
from unisono.comm.collective_check import (
    Row,
    any_code,
    check_colour,
    check_kinds,
    check_rows,
    check_values,
    late_ranks_error,
    reduced_code,
    row,
)
from unisono.errors import CommError, CommTimeout


class CheckedCommunicator(Communicator):
    """`state` is empty while the communicator works, then says in one phrase why it no longer does."""

    def __init__(self, rank: int, size: int, timeout_s: float, *, checked: bool) -> None:
        self.rank, self.size, self.timeout_s, self.checked = rank, size, timeout_s, checked
        self.state = ""

    # -- what a backend gives

    @abstractmethod
    def _show(self, what: str, mine: Row) -> list[Row]:
        """The rows of all ranks; returns when every rank has shown one, or raises `CommTimeout`."""

    @abstractmethod
    def _reduce(self, flat: Array, op: str) -> None:
        """In place; one dimension, one of `DTYPES`."""

    @abstractmethod
    def _broadcast(self, data: Array, root: int) -> None:
        """uint8, one dimension."""

    @abstractmethod
    def _all_gather(self, data: Array, out: Array) -> None:
        """uint8; `out` has one row per rank."""

    @abstractmethod
    def _gather(self, data: Array, out: Array | None, root: int) -> None:
        """Like `_all_gather`; `out` is None except on `root`."""

    # -- collectives

    def all_reduce(self, array: Array, op: str = "sum") -> None:
        check_array(array)
        self._enter("all_reduce", array.size, reduced_code(array.dtype), op_code(op))
        if array.size:
            self._reduce(array.reshape(-1), op)

    def broadcast(self, array: Array, root: int = 0) -> None:
        check_array(array)
        check_peer(self, root, "root")
        self._enter("broadcast", array.nbytes, any_code(array.dtype), root)
        if array.nbytes:
            self._broadcast(as_bytes(array), root)

    def all_gather(self, array: Array) -> Array:
        check_array(array, writable=False)
        self._enter("all_gather", array.nbytes, any_code(array.dtype))
        out = np.empty((self.size, *array.shape), array.dtype)
        if array.nbytes:
            self._all_gather(as_bytes(array), as_bytes(out).reshape(self.size, -1))
        return out

    def gather(self, array: Array, root: int = 0) -> Array | None:
        check_array(array, writable=False)
        check_peer(self, root, "root")
        self._enter("gather", array.nbytes, any_code(array.dtype), root)
        out = np.empty((self.size, *array.shape), array.dtype) if self.rank == root else None
        if array.nbytes:
            self._gather(as_bytes(array), None if out is None else as_bytes(out).reshape(self.size, -1), root)
        return out

    def barrier(self) -> None:
        self.check_open()
        check_kinds(self._show("barrier", row("barrier")))

    def agree(self, what: str, *values: int) -> None:
        self.check_open()
        check_values(values)
        check_rows("agree", self._show(what, row("agree", *values)), what)

    # -- for backends

    def gather_colours(self, colour: int) -> list[int]:
        """The colours of all ranks in a `split`."""
        self.check_open()
        check_colour(colour)
        rows = self._show("split", row("split", colour))
        check_kinds(rows)
        return [shown[2] for shown in rows]

    def check_message(self, array: Array, peer: int, role: str, tag: int) -> None:
        """Refuses a message that cannot be; `role` is "dest" or "source"."""
        self.check_open()
        check_array(array, writable=role == "source")
        check_peer(self, peer, role)
        check_tag(tag)

    def check_source(self, source: int) -> None:
        """Refuses to look for a message from nobody."""
        self.check_open()
        if source != ANY:
            check_peer(self, source, "source")

    def check_open(self) -> None:
        """Refuses everything after `close` or an error."""
        if self.state:
            raise CommError(f"this communicator is {self.state}", hint="make a new world")

    def give_up(self, what: str, missing: list[int]) -> CommTimeout:
        """Breaks the communicator; returns the error to raise."""
        self.state = f"broken: rank {self.rank} gave up in {what}"
        return late_ranks_error(self.rank, what, self.timeout_s, missing)

    def _enter(self, kind: str, *values: int) -> None:
        self.check_open()
        if self.checked:
            check_rows(kind, self._show(kind, row(kind, *values)))


def as_bytes(array: Array) -> Array:
    """The memory of a contiguous array of any type as one row of uint8; no copy."""
    return array.reshape(-1).view(np.uint8)
