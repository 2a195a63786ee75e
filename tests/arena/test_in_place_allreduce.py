"""The in-place all-reduce: what goes wrong is an error with names; what goes right is in tests/conformance."""

import numpy as np
import pytest

import unisono
from unisono.comm.topology.shared_machine import make_reducer
from unisono.errors import CommError, CommTimeout, Mismatch


def test_a_rank_that_does_not_come_is_named_and_the_reducer_is_broken():
    def work(world):
        reducer = make_reducer(world.comm, 2000, np.dtype(np.float32))
        if world.rank == 0:
            with pytest.raises(CommTimeout, match="rank 1 did not arrive") as caught:
                reducer.all_reduce(np.add, 0.2)
            with pytest.raises(CommError, match="broken"):
                reducer.all_reduce(np.add, 0.2)
            world.comm.send(np.zeros(1), 1)
            return list(caught.value.missing)
        world.comm.recv(np.empty(1), 0)
        return None

    assert unisono.run(work, 2)[0] == [1]


def test_different_operations_are_an_error_on_both():
    def work(world):
        reducer = make_reducer(world.comm, 10, np.dtype(np.float32))
        with pytest.raises(Mismatch, match="different operations"):
            reducer.all_reduce(np.add if world.rank else np.multiply, 10.0)

    unisono.run(work, 2)


def test_a_message_under_way_goes_on_meanwhile():
    def work(world):
        reducer = make_reducer(world.comm, 10, np.dtype(np.float64))
        reducer.mine[:] = world.rank
        request = world.comm.isend(np.zeros(1_000_000), 1) if world.rank == 0 else None
        if world.rank == 1:
            world.comm.recv(np.empty(1_000_000), 0)
        reducer.all_reduce(np.add, 20.0)
        if request is not None:
            request.wait()
        return float(reducer.result[3])

    assert unisono.run(work, 2, timeout_s=20) == [1.0, 1.0]
