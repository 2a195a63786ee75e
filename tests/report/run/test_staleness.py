"""What is said of asynchronous runs."""

from dataclasses import replace
from typing import Any

import pytest

from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.report.run.staleness import AsyncSetting, Staleness, opening_line


def record(
    counts: list[int], busy_s: float = 0.5, drops: int = 0, compute_s: float = 1.8, slow: float = 1.0
) -> EpochRecord:
    master = {"clips": 0, "busy_s": busy_s, "wait_master_0_s": 0.0, "compute_s": 0.0, "data_s": 0.0, "pushes": 0}
    worker = {"clips": 3, "busy_s": 0.0, "wait_master_0_s": 0.2, "compute_s": compute_s, "data_s": 0.0, "pushes": 4}
    other = worker | {"compute_s": compute_s * slow}
    metrics = {"staleness_counts": counts, "updates": sum(counts) - drops, "drops": drops, "epoch_s": 2.0}
    return EpochRecord(metrics, 1, [master, worker, other], [], meetings=1)


def told(
    rule: str, accuracy: float | None, *records: EpochRecord, cores: int = 2, order: str = "free"
) -> tuple[dict[str, Any], str]:
    found = Staleness(AsyncSetting(rule, masters=1, workers=2, classes=10, order=order))
    for one in records:
        found.add(one)
    summary = found.facts() | {"test_accuracy": accuracy, "machine": {"cores": cores}}
    again = Staleness.of(summary).lines(summary)
    assert again == found.lines(summary)
    return summary, "\n".join(again)


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


@pytest.mark.parametrize(
    ("found", "cores", "order", "says"),
    [
        (record([5], busy_s=1.9), 2, "free", "the masters, busy 95 % of the time. Try --masters 2 --ranks 4."),
        (record([8, 2], drops=2), 2, "free", "20 % of the pushes were computed in vain"),
        (record([5, 5]), 8, "free", "90 % of the workers' time. Try --ranks 9: sooner, with gradients 7 updates late "),
        (record([5]), 2, "free", "Limited by computing, 90 % of the workers' time, on all cores."),
        (record([5], compute_s=0.3, slow=4.0), 2, "free", "rank 2, which takes 4.0 times as long for a push"),
        (record([5], compute_s=0.2, slow=2.0), 1, "free", "2 workers share 1 core. Try --ranks 2, with gradients 0"),
        (record([5], compute_s=0.4), 2, "round-robin", "workers push in turn. Try --order free"),
        (record([5], compute_s=0.4), 2, "free", "a push waits 80.0 ms for an answer. Try a larger --batch-size."),
    ],
    ids=["masters", "drops", "computing", "all cores", "a slow worker", "crowded", "in turn", "short pushes"],
)
def test_the_advice_depends_on_what_was_measured(found, cores, order, says):
    _, text = told("safe", 0.9, found, cores=cores, order=order)
    assert says in text.splitlines()[-1]


def test_one_update_is_no_plural():
    found = Staleness(AsyncSetting("safe", masters=1, workers=3, classes=10, order="free"))
    one = record([5], compute_s=0.2)
    found.add(replace(one, ranks=[*one.ranks, one.ranks[-1]]))
    summary = found.facts() | {"test_accuracy": 0.9, "machine": {"cores": 2}}
    assert found.advice(summary).endswith("Try --ranks 3, with gradients 1 update late instead of 0.0.")


def test_the_opening():
    line = opening_line(
        Recipe.from_options(strategy="async", ranks=4, masters=1, batch_size=16, order="round-robin"), 3750
    )
    assert line == (
        "asynchronous: 1 master, 3 workers, rule safe; 3,750 pushes of 16 samples an epoch, dealt static, order in "
        "turn: same bits every time"
    )
