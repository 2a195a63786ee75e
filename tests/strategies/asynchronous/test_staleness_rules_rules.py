"""Rules: the formulas, and what they do to a system with delay."""

import numpy as np
import pytest

from unisono.errors import UserError
from unisono.strategies.asynchronous.staleness_rules import RULES, VARIANCE, compensate, find_rule


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
