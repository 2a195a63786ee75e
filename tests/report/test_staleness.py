"""What is said of asynchronous runs."""

from typing import Any

import pytest

from unisono.recipe import Recipe
from unisono.report.staleness import Deal, Staleness, opening_line


def record(counts: list[int], busy_s: float = 0.5, drops: int = 0) -> dict[str, Any]:
    master = {"clips": 0, "busy_s": busy_s, "wait_master_0_s": 0.0}
    worker = {"clips": 3, "busy_s": 0.0, "wait_master_0_s": 0.2}
    metrics = {"staleness_counts": counts, "updates": sum(counts) - drops, "drops": drops, "epoch_s": 2.0}
    return {"metrics": metrics, "ranks": [master, worker, worker]}


def told(
    rule: str, accuracy: float | None, *records: dict[str, Any], wait_s: float = 1.0
) -> tuple[dict[str, Any], str]:
    found = Staleness(Deal(rule, masters=1, workers=2, classes=10))
    for one in records:
        found.add(one)
    summary = found.facts() | {"test_accuracy": accuracy, "compute_s": 1.5, "wait_s": wait_s}
    return summary, "\n".join(found.told(summary))


def test_counts_are_added_up():
    summary, text = told("safe", 0.9, record([1, 3]), record([0, 1, 0, 5], drops=2))
    assert summary["staleness_counts"] == [1, 4, 0, 5]
    assert summary["staleness_mean"] == pytest.approx((4 + 15) / 10)
    assert (summary["pushes"], summary["updates"], summary["drops"], summary["clips"]) == (10, 8, 2, 12)
    assert summary["updates_per_s"] == 2.0
    assert summary["masters_busy"] == [0.25]
    assert summary["wait_per_push_s"] == [pytest.approx(0.08)]
    assert "1.9 updates on average, 1 or less for half of the pushes, at most 3; 2 of 10 pushes dropped" in text
    assert "busy 25 % of the time; after a push a worker waited 80.0 ms for master 0" in text
    assert "It guesses" not in text


@pytest.mark.parametrize(
    ("rule", "accuracy", "guesses"), [("plain", 0.1, True), ("plain", 0.9, False), ("safe", 0.1, False)]
)
def test_a_collapse_is_named_with_its_cure(rule, accuracy, guesses):
    _, text = told(rule, accuracy, record([0, 0, 0, 0, 7]))
    assert ("4.0 updates late. Try --staleness-rule safe or softsync" in text) is guesses


def test_what_limits():
    assert "Try --masters 2" in told("safe", 0.9, record([5], busy_s=1.9))[1]
    assert "Limited by computing" in told("safe", 0.9, record([5]))[1]
    assert "Limited by waiting" in told("safe", 0.9, record([5]), wait_s=2.0)[1]


def test_the_opening():
    line = opening_line(Recipe(strategy="async", ranks=4, masters=1, batch_size=16, order="round-robin"), 3750)
    assert line == (
        "asynchronous: 1 master, 3 workers, rule safe; 3,750 pushes of 16 samples an epoch, dealt static, order in "
        "turn: same bits every time"
    )
