"""How often: what can be said, and when it is due."""

import pytest

from unisono.errors import UserError
from unisono.train.every import Every


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500steps", Every(steps=500)),
        ("1step", Every(steps=1)),
        ("2 epochs", Every(epochs=2)),
        ("1epoch", Every(epochs=1)),
        ("30s", Every(seconds=30.0)),
        ("0.5seconds", Every(seconds=0.5)),
        ("", Every()),
    ],
)
def test_forms(text, expected):
    assert Every.parse("--snapshot-every", text) == expected
    assert bool(expected) == bool(text)


@pytest.mark.parametrize("text", ["10", "steps", "0steps", "0.0s", "-1s", "0.5epochs", "3hours", "1s\n", " "])
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(
        UserError, match=r"(?s)--snapshot-every is .*HINT: give a number above 0 and its unit: 500steps"
    ):
        Every.parse("--snapshot-every", text)


def test_when_it_is_due():
    assert [step for step in range(1, 8) if Every(steps=3).due(step)] == [3, 6]
    assert [epoch for epoch in range(1, 6) if Every(epochs=2).due_after(epoch)] == [2, 4]
    assert not any(Every().due(step) or Every().due_after(step) for step in range(1, 5))
    assert not any(Every(epochs=1).due(step) or Every(steps=1).due_after(step) for step in range(1, 5))


def test_half_a_step_is_refused():
    with pytest.raises(UserError, match="--snapshot-every is"):
        Every.parse("--snapshot-every", "1.5steps")
