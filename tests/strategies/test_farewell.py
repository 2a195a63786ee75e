"""What those say who leave: it fits its place, and the worst of it is not lost."""

import numpy as np
import pytest

from unisono.errors import RESUME_ME, NodeLost, OtherFailed, UserError
from unisono.strategies.farewell import ROOM_BYTES, Farewell, Farewells


@pytest.mark.parametrize(
    "farewell",
    [Farewell("rank 1: no label\nHINT: give one", 2), Farewell("", 1), Farewell("3 ranks ended", RESUME_ME, 3)],
    ids=str,
)
def test_what_is_said_is_heard(farewell):
    said = Farewells(np.zeros((3, ROOM_BYTES), np.uint8))
    assert (said.own, said.said) == (None, None)
    said.say(1, farewell)
    assert (said.own, said.said) == (farewell, farewell)


def test_what_comes_from_another_machine_is_not_this_ones_to_tell():
    said = Farewells(np.zeros((2, ROOM_BYTES), np.uint8))
    said.pass_on(Farewell("node 1: no label", 1))
    assert said.own is None
    assert said.said == Farewell("node 1: no label", 1)


def test_of_a_long_text_the_beginning_says_who_and_the_end_what():
    said = Farewells(np.zeros((2, ROOM_BYTES), np.uint8))
    said.say(0, Farewell("node 1: rank 3: " + "ä" * ROOM_BYTES + "ValueError: no label", 1))
    found = said.said
    assert found is not None
    assert found.code == 1
    assert found.text.startswith("node 1: rank 3: ä")
    assert " [...] " in found.text
    assert found.text.endswith("äValueError: no label")
    assert ROOM_BYTES - 16 < len(found.packed()) <= ROOM_BYTES


def test_an_error_is_told_with_its_exit_code():
    assert Farewell.of(UserError("no such file", hint="give one"), "rank 3") == Farewell(
        "rank 3: no such file\nHINT: give one", 2
    )
    told = Farewell.of(ValueError("no label"), "rank 0")
    assert (told.code, told.text) == (1, "rank 0: ValueError: no label")


def test_what_failed_is_no_loss_and_what_gave_up_is_one():
    failed = Farewell("node 1: rank 2: no label", 2).error(first_hand=True)
    assert isinstance(failed, OtherFailed)
    assert (failed.exit_code, str(failed), failed.first_hand) == (2, "node 1: rank 2: no label", True)
    lost = Farewell("node 1: no rank is left", RESUME_ME, 4).error(first_hand=False)
    assert isinstance(lost, NodeLost)
    assert (lost.crashes, lost.first_hand) == (4, False)
