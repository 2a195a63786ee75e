import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.errors import UserError
from unisono.optim.learning_rate import SCHEDULES, ScheduleOptions, learning_rate, scaled


def rates(options: ScheduleOptions, steps_per_epoch: int, epochs: int, lr: float = 1.0) -> list[float]:
    steps = range(1, steps_per_epoch * epochs + 1)
    return [learning_rate(options, lr, step, steps_per_epoch, epochs) for step in steps]


@pytest.mark.parametrize(
    ("options", "steps_per_epoch", "epochs", "expected"),
    [
        (ScheduleOptions(), 2, 3, [1] * 6),
        # Ten times less at every third of the epochs; stages are whole epochs, as equal as possible.
        (ScheduleOptions("step"), 1, 6, [1, 1, 0.1, 0.1, 0.01, 0.01]),
        (ScheduleOptions("step"), 2, 3, [1, 1, 0.1, 0.1, 0.01, 0.01]),
        (ScheduleOptions("step", drop=0.5), 1, 10, [1] * 4 + [0.5] * 3 + [0.25] * 3),
        (ScheduleOptions("step", drop=0.5, stages=2), 3, 2, [1] * 3 + [0.5] * 3),
        (ScheduleOptions("step"), 5, 1, [1] * 5),
        # A warm-up is linear and ends at the full rate; the cosine begins after it, stages count from the start.
        (ScheduleOptions(warmup_epochs=1), 4, 2, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
        (ScheduleOptions(warmup_epochs=0.625), 4, 1, [0.4, 0.8, 1, 1]),
        (
            ScheduleOptions("cosine", warmup_epochs=1), 4, 3,
            [0.25, 0.5, 0.75, 1, *(0.5 + 0.5 * math.cos(math.pi * done / 8) for done in range(8))],
        ),
        (ScheduleOptions("step", warmup_epochs=1), 2, 3, [0.5, 1, 0.1, 0.1, 0.01, 0.01]),
        # One that is longer than the run never ends.
        (ScheduleOptions(warmup_epochs=4), 2, 2, [1 / 8, 2 / 8, 3 / 8, 4 / 8]),
        (ScheduleOptions("cosine", warmup_epochs=4), 2, 2, [1 / 8, 2 / 8, 3 / 8, 4 / 8]),
    ],
)  # fmt: skip
def test_the_rates_of_a_run(options, steps_per_epoch, epochs, expected):
    assert rates(options, steps_per_epoch, epochs) == pytest.approx(expected, rel=1e-12)


def test_cosine_falls_to_zero():
    found = rates(ScheduleOptions("cosine"), 4, 3, lr=2.0)
    assert found == pytest.approx([1 + math.cos(math.pi * done / 12) for done in range(12)])
    assert learning_rate(ScheduleOptions("cosine"), 2.0, 13, 4, 3) == 0.0
    assert learning_rate(ScheduleOptions("cosine"), 2.0, 40, 4, 3) == 0.0


@settings(deadline=None)
@given(
    name=st.sampled_from(list(SCHEDULES)),
    warmup=st.floats(0, 20),
    steps_per_epoch=st.integers(1, 9),
    epochs=st.integers(1, 9),
)
def test_every_step_learns_and_none_beyond_the_rate(name, warmup, steps_per_epoch, epochs):
    found = rates(ScheduleOptions(name, warmup_epochs=warmup), steps_per_epoch, epochs, lr=0.3)
    assert all(0 < rate <= 0.3 for rate in found)


@pytest.mark.parametrize(("rule", "expected"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_scaling_with_the_batch(rule, expected):
    assert scaled(0.1, rule, global_batch=128, base_batch=32) == pytest.approx(expected)
    assert scaled(0.1, rule, global_batch=32, base_batch=32) == 0.1


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UserError, match="unknown --schedule 'cosin'; there are: cosine, constant, step"):
        ScheduleOptions("cosin")
    with pytest.raises(UserError, match="unknown --scale-lr 'lin'; there are: linear, none, sqrt"):
        scaled(0.1, "lin", 64, 32)


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        *(("warmup_epochs", bad, "--warmup-epochs") for bad in (-1, math.nan, math.inf)),
        *(("drop", bad, "--drop") for bad in (0, -1, 1.5, math.nan)),
        ("stages", 0, "--stages"),
    ],
)
def test_values_out_of_range_are_refused_by_option(field, value, option):
    with pytest.raises(UserError, match=f"^{option} {value}: out of range"):
        ScheduleOptions("step", **{field: value})
