"""What every communicator must do, as functions of one communicator, each called on all ranks of a world.

Inputs depend on the rank and have answers in closed form. The worlds are made by `test_conformance.py`.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from unisono.comm.allreduce import ALGORITHMS, all_reduce
from unisono.comm.base import ANY, OPS, Communicator, Envelope
from unisono.comm.topology.shared_machine import make_reducer
from unisono.errors import CommError, CommTimeout, Mismatch, UserError

Check = Callable[[Communicator], None]

CHECKS: dict[str, Check] = {}
LONG = 8 * 2**20
LENGTHS = [(10, 20), (20, 10), (0, 8), (8, 0), (10, 5000), (5000, 10), (10, 300_000), (300_000, 10)]
"""Sent and expected; the long ones take another path in every backend, and overrun the array in a bad one."""
EXACT = [np.float32, np.float64, np.int32, np.int64]
HALF = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def check(least: int = 1, most: int = 99) -> Callable[[Check], Check]:
    """A check of worlds of so many ranks; in others it does nothing."""

    def add(function: Check) -> Check:
        CHECKS[function.__name__] = lambda comm: function(comm) if least <= comm.size <= most else None
        return function

    return add


def hasty(comm: Communicator, timeout_s: float) -> Communicator:
    """A group of all ranks, which all have reached, and that waits no longer than this from now on."""
    group: Any = comm.split(0)
    group.barrier()
    if group.transport == "gloo":
        group.wait_for_others(timeout_s)
    if group.transport == "shm":
        group._mail._timeout_s = timeout_s
    group.timeout_s = timeout_s
    return group


@cache
def values(rank: int, size: int, length: int, op: str) -> np.ndarray:
    """Small whole numbers, exact in every type under every op."""
    index = np.arange(length)
    return np.where((index + rank) % size == 0, 2, 1) if op == "prod" else (index + 3 * rank) % 7 - 2


@cache
def answer(size: int, length: int, op: str) -> np.ndarray:
    index = np.arange(length)
    if op == "prod":
        return np.full(length, 2)
    rows = np.stack([(index + 3 * rank) % 7 - 2 for rank in range(size)])
    return {"sum": rows.sum(axis=0), "max": rows.max(axis=0), "min": rows.min(axis=0)}[op]


def lengths(size: int) -> list[int]:
    return sorted({0, 1, 2, max(0, size - 1), size, size + 1, 13, 1009, 4096, 40009})


def reduce_check(algorithm: str, op: str) -> Check:
    def run(comm: Communicator) -> None:
        for dtype in EXACT:
            for length in lengths(comm.size):
                array = values(comm.rank, comm.size, length, op).astype(dtype)
                all_reduce(comm, array, op, algorithm)
                np.testing.assert_array_equal(array, answer(comm.size, length, op), f"{dtype.__name__} x {length}")

    return run


for _algorithm in [*ALGORITHMS, "native"]:
    for _op in OPS:
        CHECKS[f"all_reduce {_algorithm} {_op}"] = reduce_check(_algorithm, _op)


def arena_check(op: str) -> Check:
    def run(comm: Communicator) -> None:
        for dtype in EXACT:
            for length in lengths(comm.size):
                reducer = make_reducer(comm, length, np.dtype(dtype))
                for _ in range(2):
                    reducer.mine[:] = values(comm.rank, comm.size, length, op)
                    reducer.all_reduce(OPS[op], comm.timeout_s)
                    np.testing.assert_array_equal(reducer.result, answer(comm.size, length, op))
                    comm.barrier()

    return run


for _op in OPS:
    CHECKS[f"arena {_op}"] = arena_check(_op)


@check()
def all_reduce_half_precision(comm: Communicator) -> None:
    for dtype, algorithm, op in product(HALF, [*ALGORITHMS, "native"], OPS):
        array = values(comm.rank, comm.size, 1009, op).astype(dtype)
        if algorithm == "native" and comm.transport == "mpi":
            with pytest.raises(UserError, match=rf"{dtype.name}(.|\n)*--allreduce ring"):
                comm.all_reduce(array, op)
            continue
        all_reduce(comm, array, op, algorithm)
        np.testing.assert_array_equal(array.astype(np.float64), answer(comm.size, 1009, op))


@check()
def all_reduce_of_long_arrays(comm: Communicator) -> None:
    for algorithm in ["naive", "ring", "halving", "native"]:
        array = values(comm.rank, comm.size, 1_200_007, "sum").astype(np.float32)
        all_reduce(comm, array, "sum", algorithm)
        np.testing.assert_array_equal(array, answer(comm.size, len(array), "sum"))


@check()
def all_reduce_gives_the_same_bits_on_every_rank(comm: Communicator) -> None:
    for algorithm in [*ALGORITHMS, "native"]:
        array = np.random.default_rng(comm.rank).standard_normal(5003).astype(np.float32)
        all_reduce(comm, array, "sum", algorithm)
        rows = comm.all_gather(array)
        assert all(row.tobytes() == rows[0].tobytes() for row in rows), algorithm


@check()
def all_reduce_keeps_the_shape(comm: Communicator) -> None:
    array = np.full((3, 5), comm.rank + 1.0)
    all_reduce(comm, array, "sum", "ring")
    assert array.shape == (3, 5)
    assert (array == comm.size * (comm.size + 1) / 2).all()


@check()
def unknown_names_and_numbers_are_refused(comm: Communicator) -> None:
    with pytest.raises(UserError, match="unknown op 'mean'; there are: sum, max, min, prod"):
        comm.all_reduce(np.zeros(3), "mean")
    with pytest.raises(UserError, match="did you mean 'ring'"):
        all_reduce(comm, np.zeros(3), "sum", "rings")
    with pytest.raises(UserError, match=f"root {comm.size} is outside"):
        comm.broadcast(np.zeros(3), root=comm.size)
    with pytest.raises(UserError, match="5 values are too many"):
        comm.agree("much", 1, 2, 3, 4, 5)
    with pytest.raises(UserError, match="colour -1"):
        comm.split(-1)


@check()
def arrays_that_cannot_be_moved_are_refused(comm: Communicator) -> None:
    with pytest.raises(UserError, match="not contiguous"):
        comm.all_reduce(np.zeros((4, 4))[:, 1])
    with pytest.raises(UserError, match="Python objects"):
        comm.broadcast(np.array([None]))
    with pytest.raises(UserError, match="complex128"):
        comm.all_reduce(np.zeros(3, complex))


@check(least=2)
def different_lengths_are_an_error_on_every_rank(comm: Communicator) -> None:
    for algorithm, told in {"native": r"dtype, op\): 5, float64, sum on rank 0.*; 6, float64, sum", "ring": ""}.items():
        with comm.split(0) as group, pytest.raises(Mismatch, match=f"{told}.* on rank 1"):
            all_reduce(group, np.zeros(5 + comm.rank % 2), "sum", algorithm)
    with comm.split(0) as group, pytest.raises(Mismatch):
        group.broadcast(np.zeros(3 + comm.rank))


@check(least=2)
def different_calls_are_an_error_on_every_rank(comm: Communicator) -> None:
    """Every pair of collectives, also of empty arrays, after an even and an odd number of others."""
    calls: dict[str, Callable[[Communicator], object]] = {
        "barrier": lambda group: group.barrier(),
        "agree": lambda group: group.agree("it", 1),
        "all_reduce": lambda group: group.all_reduce(np.zeros(5)),
        "all_reduce of nothing": lambda group: group.all_reduce(np.zeros(0)),
        "broadcast": lambda group: group.broadcast(np.zeros(5)),
        "broadcast of nothing": lambda group: group.broadcast(np.zeros(0)),
        "all_gather": lambda group: group.all_gather(np.zeros(5)),
        "gather of nothing": lambda group: group.gather(np.zeros(0)),
    }
    pairs = [(one, other) for one in calls for other in calls if one < other]
    if comm.transport == "gloo":
        pairs = pairs[::5]  # a group costs tens of milliseconds there
    for one, other in pairs:
        for before in (0, 1):
            with comm.split(0) as group:
                for _ in range(before):
                    group.all_gather(np.zeros(3))
                with pytest.raises(Mismatch, match="rank"):
                    calls[one if comm.rank == 0 else other](group)


@check(least=2)
def algorithms_and_messages_do_not_meet(comm: Communicator) -> None:
    for algorithm in ALGORITHMS:
        request = comm.isend(np.array([100.0]), 1) if comm.rank == 0 else None
        total = np.array([1.0])
        all_reduce(comm, total, "sum", algorithm)
        assert total[0] == comm.size, algorithm
        if comm.rank == 1:
            got = np.empty(1)
            comm.recv(got, 0)
            assert got[0] == 100
        if request is not None:
            request.wait()
        comm.barrier()


@check(least=2)
def different_algorithms_are_an_error_on_every_rank(comm: Communicator) -> None:
    with comm.split(0) as group, pytest.raises(Mismatch, match="algorithm"):
        all_reduce(group, np.zeros(5), "sum", "ring" if comm.rank else "tree")


@check()
def signed_zeros_and_nans_are_the_same_bits_on_every_rank(comm: Communicator) -> None:
    for algorithm in [*ALGORITHMS, "native"]:
        for op in ("sum", "max"):
            array = np.array([0.0, np.nan, 1.0]) * (-1.0) ** comm.rank
            all_reduce(comm, array, op, algorithm)
            rows = comm.all_gather(array)
            assert all(row.tobytes() == rows[0].tobytes() for row in rows), (algorithm, op)


@check()
def foreign_byte_order_is_refused(comm: Communicator) -> None:
    for algorithm in ("native", "ring"):
        with pytest.raises(UserError, match="byte order"):
            all_reduce(comm, np.zeros(3, ">f8"), "sum", algorithm)


@check(least=2)
def different_ops_and_types_are_an_error_on_every_rank(comm: Communicator) -> None:
    with comm.split(0) as group, pytest.raises(Mismatch):
        group.all_reduce(np.zeros(5), "max" if comm.rank else "sum")
    with comm.split(0) as group, pytest.raises(Mismatch, match="5, float64, sum on rank 0; 5, float32, sum on rank 1"):
        group.all_reduce(np.zeros(5, np.float32 if comm.rank else np.float64))


@check()
def agree_compares(comm: Communicator) -> None:
    comm.agree("the answer", 42, -7)
    comm.agree("the checksum", 2**64 - 1, -(2**63))
    if comm.size > 1:
        with pytest.raises(Mismatch, match=r"ranks disagree on the seed: 1, 0 on rank 0"):
            comm.agree("the seed", 1, min(comm.rank, 1))
        with pytest.raises(Mismatch, match="the checksum"):
            comm.agree("the checksum", 2**64 - 1 - comm.rank)
    comm.barrier()


@check()
def broadcast_from_every_root(comm: Communicator) -> None:
    for root in range(comm.size):
        for length in [*lengths(comm.size), 700_001]:
            array = np.full(length, float(comm.rank))
            comm.broadcast(array, root)
            assert (array == root).all()


@check()
def gathers(comm: Communicator) -> None:
    for shape in [(0,), (1,), (3, 4), (300_007,)]:
        mine = np.full(shape, comm.rank, np.int32)
        expected = np.stack([np.full(shape, rank, np.int32) for rank in range(comm.size)])
        np.testing.assert_array_equal(comm.all_gather(mine), expected)
        for root in range(comm.size):
            got = comm.gather(mine, root)
            if comm.rank == root:
                np.testing.assert_array_equal(got, expected)
            else:
                assert got is None


@check(least=2)
def messages_around_a_ring(comm: Communicator) -> None:
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    longest = LONG if comm.size == 3 else 1_500_001  # both are longer than any buffer in between
    for length in [0, 1, 1009, longest]:
        got = np.empty(length, np.int64)
        comm.sendrecv(np.full(length, comm.rank), right, got, left, tag=7)
        assert (got == left).all()


@check()
def everybody_sends_before_receiving(comm: Communicator) -> None:
    requests = [comm.isend(np.full(200_000, comm.rank), dest) for dest in range(comm.size) if dest != comm.rank]
    for source in range(comm.size):
        if source != comm.rank:
            got = np.empty(200_000, np.int64)
            comm.recv(got, source)
            assert (got == source).all()
    for request in requests:
        request.wait()
        assert request.test()


@check()
def short_messages_leave_at_once(comm: Communicator) -> None:
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    for number in range(20):
        for dest in others:
            comm.send(np.array([number]), dest)
    got = np.empty(1, np.int64)
    for source in others:
        for number in range(20):
            comm.recv(got, source)
            assert got[0] == number


@check(least=2)
def receives_of_one_tag_are_filled_in_order(comm: Communicator) -> None:
    for length in (5, 200_000):
        if comm.rank == 0:
            requests = [comm.isend(np.full(length, number), 1) for number in range(3)]
            for request in requests:
                request.wait()
        if comm.rank == 1:
            arrays = [np.empty(length, np.int64) for _ in range(3)]
            pending = [comm.irecv(array, 0) for array in arrays]
            for request in reversed(pending):
                request.wait()
            assert [int(array[-1]) for array in arrays] == [0, 1, 2]
    comm.barrier()


@check(least=2)
def long_messages_may_be_overtaken_and_do_not_hold_up_their_sender(comm: Communicator) -> None:
    tags = range(20)  # 16 MB: more than lies between two ranks of any backend
    if comm.rank == 0:
        requests = [comm.isend(np.full(100_000, tag), 1, tag) for tag in tags]
        while not all([request.test() for request in requests]):
            pass
    if comm.rank == 1:
        for tag in reversed(tags):
            got = np.empty(100_000, np.int64)
            comm.recv(got, 0, tag)
            assert (got == tag).all()
    comm.barrier()


@check(least=2)
def messages_of_one_tag_stay_in_order_and_tags_are_told_apart(comm: Communicator) -> None:
    if comm.rank == 0:
        for number, tag in enumerate([1, 2, 1, 2, 3]):
            comm.send(np.array([number]), 1, tag)
    if comm.rank == 1:
        order = []
        for tag in [3, 2, 2, 1, 1]:
            got = np.empty(1, np.int64)
            comm.recv(got, 0, tag)
            order.append(int(got[0]))
        assert order == [4, 1, 3, 0, 2]
    comm.barrier()


@check()
def a_posted_receive_is_filled_while_it_is_tested(comm: Communicator) -> None:
    if comm.rank == 1:
        got = np.empty(100_003)
        request = comm.irecv(got, 0, tag=5)
        comm.send(np.zeros(1), 0, tag=6)
        while not request.test():
            pass
        assert (got == 3).all()
    if comm.rank == 0 and comm.size > 1:
        comm.recv(np.empty(1), 1, tag=6)
        comm.send(np.full(100_003, 3.0), 1, tag=5)
    comm.barrier()


@check(least=2)
def a_send_under_way_goes_on_during_a_barrier(comm: Communicator) -> None:
    request = comm.isend(np.full(1_000_003, 1.0), 1) if comm.rank == 0 else None
    if comm.rank == 1:
        got = np.empty(1_000_003)
        comm.recv(got, 0)
        assert (got == 1).all()
    comm.barrier()
    if request is not None:
        request.wait()


@check()
def probe_sees_who_has_written(comm: Communicator) -> None:
    if comm.rank:
        for _ in range(3):
            comm.send(np.full(comm.rank, float(comm.rank)), 0, tag=10 + comm.rank)
        comm.barrier()
        comm.recv(np.empty(1), 0)
    else:
        comm.barrier()  # messages that wait meanwhile are there afterwards
        assert comm.size == 1 or comm.probe(1, tag=999) is None
        waiting = [rank for rank in range(1, comm.size) for _ in range(3)]
        while waiting:
            found = comm.probe(ANY, ANY)
            if found is None:
                continue
            assert found == Envelope(found.source, 10 + found.source, 8 * found.source)
            assert comm.probe(found.source, found.tag) == found  # it is still there
            got = np.empty(found.source)
            comm.recv(got, found.source, found.tag)
            assert (got == found.source).all()
            waiting.remove(found.source)
        assert comm.probe() is None
        for dest in range(1, comm.size):
            comm.send(np.zeros(1), dest)
    comm.barrier()


@check(least=2)
def a_message_of_another_length_is_refused_and_harmless(comm: Communicator) -> None:
    with comm.split(0) as group:
        for sent, expected in LENGTHS:
            if group.rank == 0:
                group.send(np.ones(sent, np.uint8), 1)
            if group.rank == 1:
                frame = np.zeros(expected + 4096, np.uint8)
                with pytest.raises(CommError, match=f"a message of {sent} bytes came from rank 0.*has {expected}"):
                    group.recv(frame[:expected], 0)
                assert not frame.any()
        group.barrier()


@check(least=3, most=3)
def collective_names_who_is_missing(comm: Communicator) -> None:
    group = hasty(comm, 3.0)
    if comm.rank == 2:
        for source in (0, 1):
            comm.recv(np.empty(1), source)
    else:
        with pytest.raises(
            CommTimeout, match=rf"^rank {comm.rank}: waited 3 s in all_reduce.*; rank 2 did not"
        ) as caught:
            group.all_reduce(np.ones(4))
        assert caught.value.missing == (2,)
        with pytest.raises(CommError, match="broken"):
            group.barrier()
        comm.send(np.zeros(1), 2)
    comm.barrier()
    group.close()
    group.close()


@check(least=3, most=3)
def who_waits_in_vain_names_who_is_missing(comm: Communicator) -> None:
    waits: list[tuple[int, tuple[int, ...], str, Callable[[Communicator], None]]] = [
        (1, (0, 2), "in barrier", lambda group: group.barrier()),
        (0, (1,), "a receive .*from rank 1", lambda group: group.recv(np.empty(3), 1)),
        (0, (1,), "a send .*to rank 1", lambda group: group.send(np.empty(1_000_003), 1)),
    ]
    for rank, missing, told, wait in waits:
        group = hasty(comm, 0.3)
        if comm.rank == rank:
            with pytest.raises(CommTimeout, match=told) as caught:
                wait(group)
            assert caught.value.missing == missing
            with pytest.raises(CommError, match="broken"):
                wait(group)
        comm.barrier()
        group.close()


@check(least=3, most=3)
def groups_take_any_colour_and_close_alone(comm: Communicator) -> None:
    group = comm.split(2**40 + comm.rank % 2)
    assert (group.rank, group.size) == ((comm.rank // 2, 2) if comm.rank % 2 == 0 else (0, 1))
    total = np.array([comm.rank])
    group.all_reduce(total)
    assert total[0] == (2 if comm.rank % 2 == 0 else 1)
    if comm.rank == 0:
        group.send(np.array([7]), 1)
        group.close()
        comm.send(np.zeros(1), 2)
    if comm.rank == 2:
        comm.recv(np.empty(1), 0)  # the other member of the group is gone by now
        group.recv(total, 0)
        assert total[0] == 7
    group.close()
    comm.barrier()


@check(least=2)
def read_only_arrays_can_be_sent(comm: Communicator) -> None:
    mine = np.frombuffer(bytes([comm.rank]) * 5000, np.uint8)
    assert (comm.all_gather(mine) == np.arange(comm.size)[:, None]).all()
    got, left = np.empty(5000, np.uint8), (comm.rank - 1) % comm.size
    comm.sendrecv(mine, (comm.rank + 1) % comm.size, got, left)
    assert (got == left).all()


@check()
def wrong_peers_and_tags_are_refused(comm: Communicator) -> None:
    with pytest.raises(UserError, match=r"outside the world|this world has one rank"):
        comm.send(np.zeros(1), comm.size)
    with pytest.raises(UserError, match=r"this very rank|this world has one rank"):
        comm.send(np.zeros(1), comm.rank)
    if comm.size > 1:
        with pytest.raises(UserError, match="tag -5"):
            comm.isend(np.zeros(1), (comm.rank + 1) % comm.size, tag=-5)


@check()
def split_by_colour(comm: Communicator) -> None:
    with comm.split(comm.rank % 2) as group:
        members = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2]
        assert (group.rank, group.size) == (members.index(comm.rank), len(members))
        array = np.array([float(comm.rank)])
        all_reduce(group, array, "sum", "ring")
        assert array[0] == sum(members)
        group.all_reduce(array, "max")
        with group.split(group.rank) as alone:
            assert alone.size == 1
    comm.barrier()


@check()
def split_by_node_finds_all_of_this_machine(comm: Communicator) -> None:
    with comm.split_by_node() as node:
        assert (node.rank, node.size) == (comm.rank, comm.size)


@check()
def closing_twice_is_harmless_and_closed_is_closed(comm: Communicator) -> None:
    group = comm.split(0)
    group.close()
    group.close()
    if comm.size > 1:
        with pytest.raises(CommError, match="closed"):
            group.barrier()
