"""All-reduce algorithms: functions over `sendrecv`, `send` and `recv`, and the table of their names.

Each takes (comm, array, ufunc), works in place on a 1-d array of any length on any number of ranks, and leaves the same
bits on every rank. `native` is the communicator's own all-reduce.

    all_reduce(comm, gradients, "sum", "ring")

For s bytes on n ranks:

| name     | algorithm                                                | steps     | bytes sent per rank |
| -------- | -------------------------------------------------------- | --------- | ------------------- |
| naive    | every rank sends its whole array to every other rank     | n-1       | (n-1)*s             |
| ring     | reduce-scatter, then all-gather, around a ring           | 2*(n-1)   | 2*s*(n-1)/n         |
| tree     | reduce to rank 0 along a binomial tree, then broadcast   | 2*log2(n) | s; rank 0 s*log2(n) |
| doubling | recursive doubling                                       | log2(n)   | s*log2(n)           |
| halving  | recursive halving, then recursive doubling (Rabenseifner)| 2*log2(n) | 2*s*(n-1)/n         |

Few steps suit short arrays, few bytes long ones. `wrappers.Counted` measures the bytes; `FORMULAS` predicts them.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from unisono.arena.reduction_tree import combine
from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator, check_array, op_code, reduction
from unisono.comm.collective_check import reduced_code
from unisono.errors import unknown_name

Algorithm: TypeAlias = Callable[[Communicator, Array, np.ufunc], None]

FORMULAS: dict[str, tuple[str, Callable[[int, int], float]]] = {
    "naive": ("(n-1)*s", lambda n, s: (n - 1) * s),
    "ring": ("2*s*(n-1)/n", lambda n, s: 2 * s * (n - 1) / n),
    "tree": ("2*s*(n-1)/n", lambda n, s: 2 * s * (n - 1) / n),
    "doubling": ("s*log2(n), n=2^k", lambda n, s: _folded_bytes(n, s, lambda p: s * math.log2(p))),
    "halving": ("2*s*(n-1)/n", lambda n, s: _folded_bytes(n, s, lambda p: 2 * s * (p - 1) / p)),
}
"""Bytes sent per rank, on average over the ranks: the usual formula, and the exact value. If n is not a power of two,
doubling and halving first fold the surplus ranks into others, and send them the result at the end."""


def _folded_bytes(n: int, s: int, core: Callable[[int], float]) -> float:
    power = 1 << n.bit_length() - 1
    return (2 * (n - power) * s + power * core(power)) / n


PIECE_BYTES = 2**19
"""Ranges are exchanged in pieces, so that what arrives is reduced in the cache and needs no second array."""


def exchange_and_reduce(
    comm: Communicator, outgoing: tuple[Array, int], incoming: tuple[Array, int], ufunc: np.ufunc
) -> None:
    """Sends outgoing = (array, dest) and reduces what arrives into incoming = (array, source), piece by piece.

    The two arrays must not overlap.
    """
    (given, dest), (target, source) = outgoing, incoming
    step = max(1, PIECE_BYTES // given.itemsize)
    inbox = np.empty(min(step, len(target)), target.dtype)
    # The two may differ in length by one element, and so in their number of pieces.
    for start in range(0, max(len(given), len(target)), step):
        leaving, piece = given[start : start + step], target[start : start + step]
        room = inbox[: len(piece)]
        if len(leaving) and len(piece):
            comm.sendrecv(leaving, dest, room, source, tag=COLLECTIVE_TAG)
        elif len(leaving):
            comm.send(leaving, dest, tag=COLLECTIVE_TAG)
        else:
            comm.recv(room, source, tag=COLLECTIVE_TAG)
        ufunc(piece, room, out=piece)


def folded(
    comm: Communicator, array: Array, ufunc: np.ufunc, core: Callable[[int, int, Callable[[int], int]], None]
) -> None:
    """Runs core(virtual rank, power of two, virtual -> real rank) on a power of two of the ranks.

    The first 2*r ranks (r = size - largest power of two) form pairs: the odd rank gives its array to the even one
    before it, and gets the result at the end. The others take part by themselves.
    """
    power = 1 << comm.size.bit_length() - 1
    pairs = comm.size - power
    rank = comm.rank
    if rank < 2 * pairs and rank % 2:
        comm.send(array, rank - 1, tag=COLLECTIVE_TAG)
        comm.recv(array, rank - 1, tag=COLLECTIVE_TAG)
        return
    if rank < 2 * pairs:
        inbox = np.empty_like(array)
        comm.recv(inbox, rank + 1, tag=COLLECTIVE_TAG)
        ufunc(array, inbox, out=array)
    virtual = rank // 2 if rank < 2 * pairs else rank - pairs
    core(virtual, power, lambda other: other * 2 if other < pairs else other + pairs)
    if rank < 2 * pairs:
        comm.send(array, rank + 1, tag=COLLECTIVE_TAG)


def naive(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """In step k each rank sends to the rank k after it, and receives from the rank k before it."""
    if comm.size == 1:
        return
    parts: list[Array] = [array] * comm.size
    for distance in range(1, comm.size):
        source = (comm.rank - distance) % comm.size
        parts[source] = np.empty_like(array)
        comm.sendrecv(array, (comm.rank + distance) % comm.size, parts[source], source, tag=COLLECTIVE_TAG)
    # In the same order on all ranks, not in the order of arrival: all must round alike.
    result = np.empty_like(array)
    combine(parts, result, ufunc)
    array[:] = result


def chunks_of(array: Array, count: int) -> list[Array]:
    """`count` consecutive views whose lengths differ by at most one."""
    borders = [len(array) * index // count for index in range(count + 1)]
    return [array[low:high] for low, high in pairwise(borders)]


def ring(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """The array is cut into n chunks, as equal as possible; some are empty if it is shorter than n.

    In n-1 steps of reduce-scatter each rank passes the partial result of one chunk to its right neighbour; in n-1 steps
    of all-gather the finished chunks go around.
    """
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    chunks = chunks_of(array, size)
    for step in range(size - 1):
        outgoing, incoming = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        exchange_and_reduce(comm, (outgoing, right), (incoming, left), ufunc)
    for step in range(size - 1):
        comm.sendrecv(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left, tag=COLLECTIVE_TAG)


def tree(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """Reduces to rank 0 along a binomial tree, and broadcasts down the same tree."""
    rank, size = comm.rank, comm.size
    inbox = np.empty_like(array)
    distance = 1
    while distance < size and not rank & distance:  # collect from the children, nearest first
        if rank + distance < size:
            comm.recv(inbox, rank + distance, tag=COLLECTIVE_TAG)
            ufunc(array, inbox, out=array)
        distance *= 2
    if rank:  # `distance` is now the lowest set bit: the parent is that much lower
        comm.send(array, rank - distance, tag=COLLECTIVE_TAG)
        comm.recv(array, rank - distance, tag=COLLECTIVE_TAG)
    distance //= 2
    while distance:  # pass the result to the children, farthest first
        if rank + distance < size:
            comm.send(array, rank + distance, tag=COLLECTIVE_TAG)
        distance //= 2


def doubling(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """Step k exchanges the whole array with the rank whose number differs in bit k."""

    def core(virtual: int, power: int, real: Callable[[int], int]) -> None:
        inbox = np.empty_like(array)
        distance = 1
        while distance < power:
            peer = real(virtual ^ distance)
            comm.sendrecv(array, peer, inbox, peer, tag=COLLECTIVE_TAG)
            # The lower rank's first: for signed zeros and NaNs the order of two operands matters.
            ufunc(*((inbox, array) if virtual & distance else (array, inbox)), out=array)
            distance *= 2

    folded(comm, array, ufunc, core)


def halving(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """Each step halves the range that this rank reduces; the way back doubles it again."""

    def core(virtual: int, power: int, real: Callable[[int], int]) -> None:
        low, high = 0, len(array)
        steps: list[tuple[int, Array, Array]] = []  # (peer, range of this rank, range of the peer)
        distance = power // 2
        while distance:
            middle = low + (high - low) // 2
            first, second = array[low:middle], array[middle:high]
            upper = bool(virtual & distance)
            keep, give = (second, first) if upper else (first, second)
            low, high = (middle, high) if upper else (low, middle)
            peer = real(virtual ^ distance)
            exchange_and_reduce(comm, (give, peer), (keep, peer), ufunc)
            steps.append((peer, keep, give))
            distance //= 2
        for peer, keep, give in reversed(steps):
            comm.sendrecv(keep, peer, give, peer, tag=COLLECTIVE_TAG)

    folded(comm, array, ufunc, core)


ALGORITHMS: dict[str, Algorithm] = {
    "naive": naive,
    "ring": ring,
    "tree": tree,
    "doubling": doubling,
    "halving": halving,
}


def all_reduce(comm: Communicator, array: Array, op: str = "sum", algorithm: str = "native") -> None:
    """In place. Different lengths, types or ops on different ranks: `Mismatch` on every rank."""
    if algorithm == "native":
        comm.all_reduce(array, op)
        return
    check_array(array)
    if algorithm not in ALGORITHMS:
        raise unknown_name("all-reduce", algorithm, [*ALGORITHMS, "native"])
    number = list(ALGORITHMS).index(algorithm)
    comm.agree(
        "bytes, dtype, op, algorithm of all_reduce", array.nbytes, reduced_code(array.dtype), op_code(op), number
    )
    ALGORITHMS[algorithm](comm, array.reshape(-1), reduction(op))
