"""What is shown of exceptions: of the user's the user's own frames, of ours everything."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from unisono.errors import unknown_name
from unisono.messages.packing import unpack
from unisono.user_code.tracebacks import ending, own_frame, own_traceback, where


def caught(work: Callable[[], object]) -> Exception:
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def mine() -> None:
    np.testing.assert_equal(1, 2)


def ours() -> None:
    unknown_name("option", "--x", None)  # type: ignore[arg-type]


def test_frames_of_packages_are_left_out_and_counted():
    text = own_traceback(caught(mine))
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.count("in mine\n") == 1
    assert "site-packages" not in text
    assert "AssertionError" in text
    left = int(text.rpartition("(left out: ")[2].partition(" frames of unisono, torch")[0])
    assert left >= 1


def test_unisono_is_not_the_users_where_it_is_installed_among_other_packages(monkeypatch):
    monkeypatch.setattr("unisono.user_code.tracebacks._OURS", str(Path(np.__file__).parent))
    monkeypatch.setattr("unisono.user_code.tracebacks._PACKAGES", set())
    assert own_frame(caught(mine)).name == "mine"


def test_what_unisono_raises_itself_is_shown_whole():
    text = own_traceback(caught(ours))
    assert "in ours\n" in text
    assert "in unknown_name\n" in text
    assert "left out" not in text


def test_what_has_no_frame_of_the_users_is_shown_whole():
    error = caught(lambda: unpack(b"{"))
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # as if we had been called from nowhere
    assert "json" in own_traceback(error)
    assert "left out" not in own_traceback(error)


def test_causes_are_shown_the_same_way():
    def wrapped() -> None:
        try:
            mine()
        except AssertionError as error:
            raise ValueError("no good") from error

    text = own_traceback(caught(wrapped))
    assert text.count("Traceback (most recent call last):") == 2
    assert "direct cause" in text
    assert "site-packages" not in text
    assert "ValueError: no good" in text


def test_where_names_the_last_own_line():
    for work in (mine, ours):
        line = work.__code__.co_firstlineno + 1
        assert where(caught(work)).endswith(f"test_tracebacks.py:{line} in {work.__name__})")


def chained() -> None:
    try:
        mine()
    except AssertionError:
        raise ValueError("it is\nno good") from None


def handled() -> None:
    try:
        mine()
    except AssertionError as error:
        raise KeyError("x") from error


def test_the_end_of_a_traceback_is_what_was_raised_and_by_whom():
    assert ending(f"rank 1: {own_traceback(caught(chained))}") == "rank 1: ValueError: it is"
    assert ending(own_traceback(caught(handled))) == "KeyError: 'x'"


def test_what_is_no_traceback_is_its_own_end():
    cut = "Traceback (most recent call last):\n"
    for text in ("", "no room\nHINT: make some", cut, f"rank 0: {cut}  File", f"a\nb {cut}ValueError"):
        assert ending(text) == text
