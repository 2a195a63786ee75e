"""What becomes of a round when another machine leaves: lost, or with a reason that all leave with."""

from typing import Any

import pytest

from unisono.arena.segment import Segment
from unisono.comm.serial import SerialCommunicator
from unisono.comm.wrappers import Wrapper
from unisono.errors import RESUME_ME, CommError, NodeLost, OtherFailed
from unisono.models.nets import build
from unisono.optim.options import OptimizerOptions
from unisono.strategies.farewell import Farewell
from unisono.strategies.nodes.courier import Courier
from unisono.strategies.nodes.desk import SURVEY
from unisono.strategies.nodes.names import NodeName
from unisono.strategies.nodes.seating import Seating
from unisono.strategies.shared import Extent, Shared, plan_sections

NAMES = [NodeName(node, f"n{node}", f"10.0.0.{node + 1}", [node]) for node in range(3)]


class Broken(Wrapper):
    """One of three couriers, whose connections break in the next exchange; others may have said something before."""

    def __init__(self, *words: bytes) -> None:
        super().__init__(SerialCommunicator())
        self.rank, self.size = 0, 3
        self.words, self.told = [*words], []  # type: tuple[list[bytes], list[bytes]]

    def all_gather(self, array: Any) -> Any:
        raise CommError("all_gather failed: 10.0.0.2 is gone", rank=0, peer_address="10.0.0.2")

    def take_leave(self, words: bytes) -> None:
        self.told.append(words)

    def last_words(self) -> list[bytes]:
        return self.words


def courier_over(comm: Broken) -> tuple[Courier, Shared]:
    model, seating = build("linear", 4, 1), Seating.of([0, 1, 2], 0, 8)
    sections = plan_sections(model, OptimizerOptions("sgd", lr=0.1), Extent(1, 8, (8,), undo=False, seating=seating))
    segment = Segment.create(sections.nbytes)
    shared = Shared(segment, sections, 1, (seating, model.layout.length))
    segment.close()
    assert shared.desk is not None
    shared.desk.order(1, SURVEY, 0, due=False)
    return Courier(shared, comm, NAMES), shared


def test_a_machine_that_leaves_without_a_word_is_lost():
    comm = Broken()
    courier, shared = courier_over(comm)
    with pytest.raises(NodeLost, match=r"node 1 \(n1, 10.0.0.2, rank 1\) was lost"):
        courier.serve(1, (0,))
    assert shared.desk.failed
    courier.close()
    assert comm.told == []


def test_a_machine_that_failed_is_not_and_all_leave_with_its_reason():
    words = Farewell(f"{NAMES[1]}: rank 1: no label", 2).packed()
    comm = Broken(words)
    courier, shared = courier_over(comm)
    with pytest.raises(OtherFailed) as caught:
        courier.serve(1, (0,))
    assert (str(caught.value), caught.value.exit_code) == (f"{NAMES[1]}: rank 1: no label", 2)
    assert shared.desk.failed, "its ranks wait no longer"
    assert shared.farewells.said == Farewell(f"{NAMES[1]}: rank 1: no label", 2), "and find out why"
    courier.close()
    assert comm.told == [words], "passed on, once: a third machine may see the end of this one first"


def test_a_machine_that_gave_up_is_lost_with_what_ended_its_ranks():
    courier, _ = courier_over(Broken(Farewell(f"{NAMES[2]}: 5 ranks ended", RESUME_ME, 5).packed()))
    with pytest.raises(NodeLost, match="5 ranks ended") as caught:
        courier.serve(1, (0,))
    assert caught.value.crashes == 5


def test_what_a_rank_of_this_machine_said_is_told_to_the_others_when_its_courier_leaves():
    comm = Broken()
    courier, shared = courier_over(comm)
    shared.farewells.say(0, Farewell("rank 0: no label", 1))
    courier.close()
    assert [*map(Farewell.unpacked, comm.told)] == [Farewell(f"{NAMES[0]}: rank 0: no label", 1, node=0)]
