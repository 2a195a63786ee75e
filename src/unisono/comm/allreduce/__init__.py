"""All-reduce algorithms: pure functions over `sendrecv`, `send` and `recv`, and the table that names them.

Each takes (comm, array, ufunc), works in place on a 1-d array of any length on any number of ranks, and leaves the same
bits on every rank. `native` is the communicator's own.

    all_reduce(comm, gradients, "sum", "ring")

Bytes sent per rank for s bytes on n ranks: see `FORMULAS`; `wrappers.Counted` measures them.
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

import numpy as np

from unisono.comm.arrival import reduced_code
from unisono.comm.base import Array, Communicator, check_array, op_code, reduction
from unisono.errors import unknown_name

Algorithm: TypeAlias = Callable[[Communicator, Array, np.ufunc], None]

ALGORITHMS = {
    "naive": "unisono.comm.allreduce.naive:naive",
    "ring": "unisono.comm.allreduce.ring:ring",
    "tree": "unisono.comm.allreduce.tree:tree",
    "doubling": "unisono.comm.allreduce.doubling:doubling",
    "halving": "unisono.comm.allreduce.halving:halving",
}

FORMULAS: dict[str, tuple[str, Callable[[int, int], float]]] = {
    "naive": ("(n-1)*s", lambda n, s: (n - 1) * s),
    "ring": ("2*s*(n-1)/n", lambda n, s: 2 * s * (n - 1) / n),
    "tree": ("2*s*(n-1)/n", lambda n, s: 2 * s * (n - 1) / n),
    "doubling": ("s*log2(n), n=2^k", lambda n, s: _folded_bytes(n, s, lambda p: s * math.log2(p))),
    "halving": ("2*s*(n-1)/n", lambda n, s: _folded_bytes(n, s, lambda p: 2 * s * (p - 1) / p)),
}
"""Bytes sent per rank, on average over the ranks: the usual text, and the exact value. In worlds that are not a power
of two, doubling and halving fold the ranks too many into others first, and send them the result."""


def _folded_bytes(n: int, s: int, core: Callable[[int], float]) -> float:
    power = 1 << n.bit_length() - 1
    return (2 * (n - power) * s + power * core(power)) / n


def load(name: str) -> Algorithm:
    """The function behind a name."""
    if name not in ALGORITHMS:
        raise unknown_name("all-reduce", name, [*ALGORITHMS, "native"])
    module, _, function = ALGORITHMS[name].partition(":")
    algorithm: Algorithm = getattr(import_module(module), function)
    return algorithm


def all_reduce(comm: Communicator, array: Array, op: str = "sum", algorithm: str = "native") -> None:
    """In place. Different lengths, types or ops on different ranks: `Mismatch` on every rank."""
    if algorithm == "native":
        comm.all_reduce(array, op)
        return
    check_array(array)
    function = load(algorithm)
    number = list(ALGORITHMS).index(algorithm)
    comm.agree(
        "bytes, dtype, op, algorithm of all_reduce", array.nbytes, reduced_code(array.dtype), op_code(op), number
    )
    function(comm, array.reshape(-1), reduction(op))
