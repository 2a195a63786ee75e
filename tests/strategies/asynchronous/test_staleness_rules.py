"""Rules: the formulas, and what they do to a system with delay. Bounds: what is given, and that waiting keeps every
worker within them without anybody waiting for ever."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import UserError
from unisono.strategies.asynchronous.sequencer import Sequencer, SequencerRules
from unisono.strategies.asynchronous.staleness_rules import (
    RULES,
    VARIANCE,
    StalenessBound,
    compensate,
    find_rule,
    may_pass,
)


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("plain", [1.0, 1.0, 1.0, 1.0]),
        ("scaled", [1.0, 1.0, 1 / 4, 1 / 9]),
        ("safe", [1 / 4, 1 / 4, 1 / 4, 1 / 9]),
        ("softsync", [1.0, 1.0, 1.0, 1.0]),
        ("delay-compensated", [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_factor_for_the_learning_rate(name, factors):
    assert [RULES[name].rate(staleness, 4) for staleness in (0, 1, 4, 9)] == factors


def test_an_unknown_rule_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"unknown --staleness-rule 'save'.*softsync(.|\n)*did you mean 'safe'"):
        find_rule("save")


def test_every_rule_names_its_source_and_formula():
    for rule in RULES.values():
        assert "eta" in rule.rate.__doc__
        assert "arXiv" in rule.rate.__doc__ or "2012" in rule.rate.__doc__


def test_compensation_is_the_formula():
    gradient, params, seen = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    out = np.empty_like(gradient)
    compensate(gradient, params, seen, out)
    expected = gradient + VARIANCE * gradient.astype(np.float64) ** 2 * (params - seen)
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def final_distance(name: str, workers: int, lr: float) -> float:
    """|w| after 400 pushes in turn on the loss w^2 / 2, from w = 1: every gradient is workers - 1 updates old."""
    rule, history, collected = RULES[name], [1.0] * workers, 0.0
    for push in range(400):
        gradient = history[-workers]
        collected += gradient
        if not rule.collects:
            history.append(history[-1] - lr * rule.rate(workers - 1, workers) * gradient)
        elif push % workers == workers - 1:
            history += [history[-1] - lr * collected / workers] * workers
            collected = 0.0
    return abs(history[-1])


def test_with_many_workers_plain_diverges_where_the_others_converge():
    assert final_distance("plain", 1, 0.6) < 1e-6
    assert final_distance("plain", 16, 0.6) > 1e3
    for name in ("safe", "scaled", "softsync"):
        assert final_distance(name, 16, 0.6) < 1e-3, name


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("", StalenessBound(8)),
        ("none", None),
        ("5", StalenessBound(5)),
        ("5:wait", StalenessBound(5)),
        ("0:drop", StalenessBound(0, drop=True)),
    ],
)
def test_what_may_be_given(text, bound):
    assert StalenessBound.parse(text, workers=4, usual=8) == bound


@pytest.mark.parametrize("text", ["many", "-1", "5:skip", "2.5", ":drop"])
def test_what_may_not_be_given(text):
    with pytest.raises(UserError, match="--max-staleness"):
        StalenessBound.parse(text, workers=4, usual=8)


def test_a_bound_that_would_let_workers_wait_for_ever_is_refused():
    with pytest.raises(UserError, match=r"3 updates apart(.|\n)*give 3 or more, or 2:drop"):
        StalenessBound.parse("2", workers=4, usual=0)


def test_a_push_passes_as_long_as_it_leaves_time_for_all_others():
    assert may_pass(0, [0, 0], bound=2)
    assert not may_pass(0, [0, 0], bound=1)


@given(st.integers(1, 5), st.integers(0, 8), st.lists(st.integers(0, 4), max_size=60))
def test_waiting_keeps_the_bound_and_never_locks_up(workers, more, speeds):
    """Workers become ready in any order; a worker that is never ready by itself is so when nobody else may go."""
    bound = workers - 1 + more
    sequencer, active = Sequencer(SequencerRules(workers, bound=StalenessBound(bound))), set(range(workers))
    for rank in active:
        sequencer.greet(rank, 1)
    posted: set[int] = set()
    for speed in speeds:
        posted.add(speed % workers)
        rank = sequencer.choose(posted, active)
        if rank is None:
            posted = set(active)
            rank = sequencer.choose(posted, active)
        assert rank is not None
        assert sequencer.push(rank, 0, 0).staleness <= bound
        posted.discard(rank)


def test_without_waiting_the_bound_is_broken_in_the_same_situation():
    sequencer = Sequencer(SequencerRules(2))
    for rank in (0, 1):
        sequencer.greet(rank, 1)
    for _ in range(5):
        assert sequencer.choose({0}, {0, 1}) == 0
        sequencer.push(0, 0, 0)
    assert sequencer.push(1, 0, 0).staleness == 5


def test_what_is_too_stale_is_dropped_and_changes_nothing():
    sequencer = Sequencer(SequencerRules(2, bound=StalenessBound(1, drop=True)))
    for rank in (0, 1):
        sequencer.greet(rank, 1)
    for _ in range(3):
        sequencer.push(0, 0, 0)
    late = sequencer.push(1, 0, 0)
    assert (late.staleness, late.updates) == (3, 0)
    assert sequencer.push(0, 0, 0).staleness == 0  # nothing was updated since its own push
    assert sequencer.push(1, 0, 0).staleness == 1  # it was given fresh parameters
