"""What becomes of a round when another machine leaves: lost, or with a reason that all leave with."""

from typing import Any

import pytest

from support.strategies.arena_cases import arena_state
from unisono.comm.serial import SerialCommunicator
from unisono.comm.wrappers import Wrapper
from unisono.errors import RESUME_ME, CommError, NodeLost, OtherFailed
from unisono.strategies.arena.state import ArenaExtent, ArenaState
from unisono.strategies.failure_notice import FailureNotice
from unisono.strategies.machines.machine_exchange import Exchanger
from unisono.strategies.machines.machine_layout import MachineLayout, MachineName
from unisono.strategies.machines.mailbox import EVALUATION

NAMES = [MachineName(node, f"n{node}", f"10.0.0.{node + 1}", [node]) for node in range(3)]


class Broken(Wrapper):
    """One of three exchangers, whose connections break in the next exchange; others may have said something before."""

    def __init__(self, *words: bytes) -> None:
        super().__init__(SerialCommunicator())
        self.rank, self.size = 0, 3
        self.words, self.told = [*words], []  # type: tuple[list[bytes], list[bytes]]

    def all_gather(self, array: Any) -> Any:
        raise CommError("all_gather failed: 10.0.0.2 is gone", rank=0, peer_address="10.0.0.2")

    def announce_failure(self, words: bytes) -> None:
        self.told.append(words)

    def failure_notices(self) -> list[bytes]:
        return self.words


def exchanger_over(comm: Broken) -> tuple[Exchanger, ArenaState]:
    shared = arena_state(ArenaExtent(1, 8, (8,), undo=False, machine_layout=MachineLayout.of([0, 1, 2], 0, 8)))
    assert shared.mailbox is not None
    shared.mailbox.order(1, EVALUATION, 0, due=False)
    return Exchanger(shared, comm, NAMES), shared


def test_a_machine_that_leaves_without_a_word_is_lost():
    comm = Broken()
    exchanger, shared = exchanger_over(comm)
    with pytest.raises(NodeLost, match=r"node 1 \(n1, 10.0.0.2, rank 1\) was lost"):
        exchanger.serve(1, (0,))
    assert shared.mailbox.failed
    exchanger.close()
    assert comm.told == []


def test_a_machine_that_failed_is_not_and_all_leave_with_its_reason():
    words = FailureNotice(f"{NAMES[1]}: rank 1: no label", 2).packed()
    comm = Broken(words)
    exchanger, shared = exchanger_over(comm)
    with pytest.raises(OtherFailed) as caught:
        exchanger.serve(1, (0,))
    assert (str(caught.value), caught.value.exit_code) == (f"{NAMES[1]}: rank 1: no label", 2)
    assert shared.mailbox.failed, "its ranks wait no longer"
    assert shared.failure_notices.first == FailureNotice(f"{NAMES[1]}: rank 1: no label", 2), "and find out why"
    exchanger.close()
    assert comm.told == [words], "passed on, once: a third machine may see the end of this one first"


def test_a_machine_that_gave_up_is_lost_with_what_ended_its_ranks():
    exchanger, _ = exchanger_over(Broken(FailureNotice(f"{NAMES[2]}: 5 ranks ended", RESUME_ME, 5).packed()))
    with pytest.raises(NodeLost, match="5 ranks ended") as caught:
        exchanger.serve(1, (0,))
    assert caught.value.crashes == 5


def test_what_a_rank_of_this_machine_said_is_told_to_the_others_when_its_exchanger_leaves():
    comm = Broken()
    exchanger, shared = exchanger_over(comm)
    shared.failure_notices.write(0, FailureNotice("rank 0: no label", 1))
    exchanger.close()
    assert [*map(FailureNotice.unpacked, comm.told)] == [FailureNotice(f"{NAMES[0]}: rank 0: no label", 1, node=0)]
