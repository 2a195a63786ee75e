"""What is hard for backends over a network: time-outs, wrong lengths, long messages. Each is called on 3 ranks.

`run` prints one line per check and rank; `outcomes` reads them. The general suite is `tests/conformance`.
"""

import traceback
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from unisono.comm.base import ANY, Communicator
from unisono.errors import CommError, CommTimeout, Mismatch

Make = Callable[[float], Communicator]
"""Another world: its ranks may take long to meet, but then wait for each other for no more than these seconds."""
Check = Callable[[Communicator, Make], None]

LONG = 64 * 2**20
LENGTHS = [(10, 20), (20, 10), (0, 8), (8, 0), (10, 5000), (5000, 10), (10, 300_000), (300_000, 10)]
"""Sent and expected; the long ones take another path in every backend, and overrun the array in a bad one."""


def collective_names_who_is_missing(comm: Communicator, make: Make) -> None:
    group = make(3.0)
    if comm.rank == 2:
        for source in (0, 1):
            comm.recv(np.empty(1), source)
    else:
        with pytest.raises(CommTimeout, match=r"in all_reduce.*; rank 2 did not arrive") as caught:
            group.all_reduce(np.ones(4))
        assert caught.value.missing == (2,)
        with pytest.raises(CommError, match="broken"):
            group.barrier()
        comm.send(np.zeros(1), 2)
    comm.barrier()
    group.close()
    group.close()


def two_can_be_missing(comm: Communicator, make: Make) -> None:
    group = make(1.0)
    if comm.rank == 1:
        with pytest.raises(CommTimeout) as caught:
            group.barrier()
        assert caught.value.missing == (0, 2)
    comm.barrier()
    group.close()


def receive_names_its_source(comm: Communicator, make: Make) -> None:
    group = make(1.0)
    if comm.rank == 0:
        with pytest.raises(CommTimeout, match="a receive from rank 1") as caught:
            group.recv(np.empty(3), 1)
        assert caught.value.missing == (1,)
    comm.barrier()
    group.close()


def send_names_its_destination(comm: Communicator, make: Make) -> None:
    group = make(1.0)
    if comm.rank == 0:
        with pytest.raises(CommTimeout, match="a send to rank 1") as caught:
            group.send(np.empty(1_000_003), 1)
        assert caught.value.missing == (1,)
    comm.barrier()
    group.close()


def mismatches_are_named_on_every_rank(comm: Communicator, make: Make) -> None:
    with pytest.raises(Mismatch, match=r"dtype, op\): 5, float64, sum on rank 0, 2; 6, float64, sum on rank 1"):
        comm.all_reduce(np.zeros(5 + comm.rank % 2))
    with pytest.raises(Mismatch, match="5, float64, sum on rank 0; 5, float32, sum on rank 1, 2"):
        comm.all_reduce(np.zeros(5, np.float32 if comm.rank else np.float64))
    enter = comm.barrier if comm.rank else partial(comm.all_gather, np.zeros(1))
    with pytest.raises(Mismatch, match=r"which collective to enter: .*barrier on rank"):
        enter()
    with pytest.raises(Mismatch, match="the checksum"):
        comm.agree("the checksum", 2**64 - 1 - comm.rank)
    comm.agree("the checksum", 2**64 - 1, -(2**63))


def wrong_lengths_are_told_and_harmless(comm: Communicator, make: Make) -> None:
    for sent, expected in LENGTHS:
        if comm.rank == 0:
            comm.send(np.ones(sent, np.uint8), 1)
        if comm.rank == 1:
            frame = np.zeros(expected + 4096, np.uint8)
            with pytest.raises(CommError, match=f"a message of {sent} bytes came from rank 0.*has {expected}"):
                comm.recv(frame[:expected], 0)
            assert not frame.any()
    comm.barrier()


def receives_of_one_tag_are_filled_in_order(comm: Communicator, make: Make) -> None:
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


def long_messages_may_be_overtaken(comm: Communicator, make: Make) -> None:
    if comm.rank == 0:
        requests = [comm.isend(np.full(200_000, tag), 1, tag) for tag in (1, 2, 3)]
        while not all([request.test() for request in requests]):
            pass
    if comm.rank == 1:
        for tag in (3, 1, 2):
            got = np.empty(200_000, np.int64)
            comm.recv(got, 0, tag)
            assert (got == tag).all()
    comm.barrier()


def short_messages_leave_at_once(comm: Communicator, make: Make) -> None:
    others = [rank for rank in range(3) if rank != comm.rank]
    for number in range(20):
        for dest in others:
            comm.send(np.array([number]), dest)
    got = np.empty(1, np.int64)
    for source in others:
        for number in range(20):
            comm.recv(got, source)
            assert got[0] == number
    comm.barrier()


def probe_is_fair(comm: Communicator, make: Make) -> None:
    if comm.rank:
        for _ in range(3):
            comm.send(np.zeros(comm.rank), 0, tag=comm.rank)
        comm.barrier()
    else:
        comm.barrier()
        found = []
        while len(found) < 6:
            envelope = comm.probe(ANY, ANY)
            if envelope is not None:
                found.append(envelope.source)
                assert envelope.nbytes == 8 * envelope.source == 8 * envelope.tag
                comm.recv(np.empty(envelope.source), envelope.source, envelope.tag)
        assert sorted(found) == [1, 1, 1, 2, 2, 2]
    comm.barrier()


def long_messages_around_a_ring(comm: Communicator, make: Make) -> None:
    left, right = (comm.rank - 1) % 3, (comm.rank + 1) % 3
    got = np.empty(LONG, np.uint8)
    comm.sendrecv(np.full(LONG, comm.rank, np.uint8), right, got, left)
    assert (got == left).all()


def groups_take_any_colour_and_close_alone(comm: Communicator, make: Make) -> None:
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


def read_only_arrays_can_be_sent(comm: Communicator, make: Make) -> None:
    mine = np.frombuffer(bytes([comm.rank]) * 5000, np.uint8)
    assert (comm.all_gather(mine) == np.arange(3)[:, None]).all()
    got = np.empty(5000, np.uint8)
    comm.sendrecv(mine, (comm.rank + 1) % 3, got, (comm.rank - 1) % 3)
    assert (got == (comm.rank - 1) % 3).all()


CHECKS: list[Check] = [
    collective_names_who_is_missing,
    two_can_be_missing,
    receive_names_its_source,
    send_names_its_destination,
    mismatches_are_named_on_every_rank,
    wrong_lengths_are_told_and_harmless,
    receives_of_one_tag_are_filled_in_order,
    long_messages_may_be_overtaken,
    short_messages_leave_at_once,
    probe_is_fair,
    long_messages_around_a_ring,
    groups_take_any_colour_and_close_alone,
    read_only_arrays_can_be_sent,
]


def run(comm: Communicator, make: Make, checks: list[Check]) -> None:
    """Stops at the first failure of this rank, for the ranks are out of step then."""
    for check in checks:
        try:
            check(comm, make)
        except Exception:
            print(f"FAILED {check.__name__} on rank {comm.rank}\n{traceback.format_exc()}", flush=True)
            raise
        print(f"PASSED {check.__name__} on rank {comm.rank}", flush=True)


def passed_everywhere(name: str, output: str) -> bool:
    return all(f"PASSED {name} on rank {rank}" in output for rank in range(3))
