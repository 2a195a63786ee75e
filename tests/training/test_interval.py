"""How often: what can be said, and when it is due."""

import pytest

from unisono.errors import UserError
from unisono.training.interval import Interval


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500steps", Interval(steps=500)),
        ("1step", Interval(steps=1)),
        ("2 epochs", Interval(epochs=2)),
        ("1epoch", Interval(epochs=1)),
        ("30s", Interval(seconds=30.0)),
        ("0.5seconds", Interval(seconds=0.5)),
        ("", Interval()),
    ],
)
def test_forms(text, expected):
    assert Interval.parse("--snapshot-every", text) == expected
    assert bool(expected) == bool(text)


@pytest.mark.parametrize("text", ["10", "steps", "0steps", "0.0s", "-1s", "0.5epochs", "3hours", "1s\n", " "])
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(
        UserError, match=r"(?s)--snapshot-every is .*HINT: give a number above 0 and its unit: 500steps"
    ):
        Interval.parse("--snapshot-every", text)


def test_when_it_is_due():
    assert [step for step in range(1, 8) if Interval(steps=3).due(step)] == [3, 6]
    assert [epoch for epoch in range(1, 6) if Interval(epochs=2).due_after(epoch)] == [2, 4]
    assert not any(Interval().due(step) or Interval().due_after(step) for step in range(1, 5))
    assert not any(Interval(epochs=1).due(step) or Interval(steps=1).due_after(step) for step in range(1, 5))


def test_half_a_step_is_refused():
    with pytest.raises(UserError, match="--snapshot-every is"):
        Interval.parse("--snapshot-every", "1.5steps")
