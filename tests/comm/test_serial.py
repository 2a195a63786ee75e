"""A world of one: what `tests/conformance` does not ask of it."""

import numpy as np
import pytest

from unisono.comm.serial import SerialCommunicator
from unisono.errors import UserError


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


def test_a_group_of_one_is_one():
    with SerialCommunicator(7.0).split(3) as group:
        assert (group.rank, group.size, group.transport, group.timeout_s) == (0, 1, "serial", 7.0)
