"""A world of one: nothing to do, but arguments are checked as in any other."""

import numpy as np
import pytest

from unisono.comm.serial import SerialCommunicator
from unisono.errors import UserError


def test_collectives_are_already_done():
    with SerialCommunicator() as comm:
        array = np.arange(6.0).reshape(2, 3)
        for op in ("sum", "max", "min", "prod"):
            comm.all_reduce(array, op)
        comm.broadcast(array)
        comm.barrier()
        comm.agree("the seed", 1, 2)
        np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3))
        np.testing.assert_array_equal(comm.all_gather(array), array[None])
        np.testing.assert_array_equal(comm.gather(array), array[None])
        assert (comm.rank, comm.size, comm.transport) == (0, 1, "serial")


def test_gathered_arrays_are_copies():
    array = np.zeros(3)
    SerialCommunicator().all_gather(array)[:] = 1
    assert not array.any()


def test_there_is_nobody_to_write_to():
    comm = SerialCommunicator()
    with pytest.raises(UserError, match="cannot send to rank 0: this world has one rank"):
        comm.send(np.zeros(1), 0)
    with pytest.raises(UserError, match="cannot receive from rank 1"):
        comm.recv(np.zeros(1), 1)
    assert comm.probe() is None


def test_arguments_are_checked_all_the_same():
    comm = SerialCommunicator()
    with pytest.raises(UserError, match="unknown op 'mean'"):
        comm.all_reduce(np.zeros(3), "mean")
    with pytest.raises(UserError, match="byte order"):
        comm.all_reduce(np.zeros(3, ">f4"))
    with pytest.raises(UserError, match="root 1 is outside"):
        comm.broadcast(np.zeros(3), root=1)
    with pytest.raises(UserError, match="5 values are too many"):
        comm.agree("much", 1, 2, 3, 4, 5)
    with pytest.raises(UserError, match="colour -1"):
        comm.split(-1)


def test_a_group_of_one_is_one():
    with SerialCommunicator(7.0).split(3) as group:
        assert (group.size, group.timeout_s) == (1, 7.0)
