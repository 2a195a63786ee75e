"""Spans add up: every moment of a step once, layers inside layers once."""

import pytest

from unisono.measure.profile.instrument import PHASES, layers_of, phases_of


def test_phases_share_out_a_step_and_waiting_for_norms_is_no_updating():
    found = phases_of(
        [
            (("data",), 0.0, 1.0),
            (("forward",), 1.0, 3.0),
            (("forward", "0", "Linear"), 1.0, 2.0),
            (("backward",), 3.0, 6.0),
            (("sum",), 6.0, 6.5),
            (("wait",), 7.0, 9.0),
            (("wait",), 10.0, 10.25),  # for norms, inside the update
            (("sum",), 9.0, 9.5),
            (("update",), 9.5, 11.0),
            (("wait",), 11.0, 11.5),
            (("step",), 0.0, 12.0),
        ]
    )
    expected = {"data": 1.0, "forward": 2.0, "backward": 3.0, "waiting": 2.75, "summing": 1.0, "optimizer": 1.25}
    assert found == expected | {"other": 1.0, "step": 12.0}
    assert sum(found[name] for name in PHASES) == found["step"]


def test_what_an_exchange_of_messages_takes_is_summing():
    assert phases_of([(("exchange",), 0.0, 2.0), (("step",), 0.0, 3.0)])["summing"] == 2.0


def test_a_module_that_contains_others_is_left_with_the_rest():
    outer, inner, leaf = (("forward", name, "Block") for name in ("", "a", "a.b"))
    once = [(leaf, 2.0, 3.0), (inner, 1.0, 4.0), (inner, 5.0, 6.0), (outer, 0.0, 10.0)]
    found = layers_of([*once, *((key, begun + 20, ended + 20) for key, begun, ended in once)])
    assert {key: (cost.calls, cost.total_s, cost.self_s) for key, cost in found.items()} == {
        leaf: (2, 2.0, 2.0),
        inner: (4, 8.0, 6.0),
        outer: (2, 20.0, 12.0),
    }
    assert sum(cost.self_s for cost in found.values()) == pytest.approx(20.0)
