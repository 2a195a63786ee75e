"""What those say who leave: it fits its place, and the worst of it is not lost."""

import numpy as np
import pytest

from unisono.errors import RESUME_ME, NodeLost, OtherFailed, UserError
from unisono.strategies.failure_notice import ROOM_BYTES, FailureNotice, FailureNotices


@pytest.mark.parametrize(
    "failure_notice",
    [
        FailureNotice("rank 1: no label\nHINT: give one", 2),
        FailureNotice("", 1),
        FailureNotice("3 ranks ended", RESUME_ME, 3),
    ],
    ids=str,
)
def test_what_is_said_is_heard(failure_notice):
    said = FailureNotices(np.zeros((3, ROOM_BYTES), np.uint8))
    assert (said.own, said.first) == (None, None)
    said.write(1, failure_notice)
    assert (said.own, said.first) == (failure_notice, failure_notice)


def test_what_comes_from_another_machine_is_not_this_ones_to_tell():
    said = FailureNotices(np.zeros((2, ROOM_BYTES), np.uint8))
    said.pass_on(FailureNotice("node 1: no label", 1))
    assert said.own is None
    assert said.first == FailureNotice("node 1: no label", 1)


def test_of_a_long_text_the_beginning_says_who_and_the_end_what():
    said = FailureNotices(np.zeros((2, ROOM_BYTES), np.uint8))
    said.write(0, FailureNotice("node 1: rank 3: " + "ä" * ROOM_BYTES + "ValueError: no label", 1))
    found = said.first
    assert found is not None
    assert found.code == 1
    assert found.text.startswith("node 1: rank 3: ä")
    assert " [...] " in found.text
    assert found.text.endswith("äValueError: no label")
    assert ROOM_BYTES - 16 < len(found.packed()) <= ROOM_BYTES


def test_an_error_is_told_with_its_exit_code():
    assert FailureNotice.of(UserError("no such file", hint="give one"), "rank 3") == FailureNotice(
        "rank 3: no such file\nHINT: give one", 2
    )
    told = FailureNotice.of(ValueError("no label"), "rank 0")
    assert (told.code, told.text) == (1, "rank 0: ValueError: no label")


def test_what_failed_is_no_loss_and_what_gave_up_is_one():
    failed = FailureNotice("node 1: rank 2: no label", 2).error(first_hand=True)
    assert isinstance(failed, OtherFailed)
    assert (failed.exit_code, str(failed), failed.first_hand) == (2, "node 1: rank 2: no label", True)
    lost = FailureNotice("node 1: no rank is left", RESUME_ME, 4).error(first_hand=False)
    assert isinstance(lost, NodeLost)
    assert (lost.crashes, lost.first_hand) == (4, False)
