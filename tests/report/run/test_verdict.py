from dataclasses import replace

import pytest

from support.report.run_records import SUMMARY, rank, record, totals_of
from unisono.report.run.aggregate import RunTotals
from unisono.report.run.verdict import findings, readable_s, verdict


def told(change: dict | None = None, totals: RunTotals | None = None) -> str:
    return verdict(SUMMARY | (change or {}), totals or totals_of([rank(), rank()]), "runs/x", cores=2)


def test_the_outcome():
    lines = told({"stopped_early": "test accuracy 0.9 reached 0.9"}).splitlines()
    assert lines[0] == "Stopped early after epoch 3: test accuracy 0.9 reached 0.9."
    assert lines[1] == "test accuracy 90.00 %, test loss 0.5000; 2.0 s of training, 3.0 s in all, 1,000 samples/s."
    assert lines[-1] == "weights abababababababab...; everything is in runs/x"
    assert len(lines) == 5  # nothing stood out


@pytest.mark.parametrize(
    ("change", "score"),
    [
        ({"test_accuracy": 0.0}, "test accuracy 0.00 %, test loss 0.5000;"),
        ({"test_accuracy": None}, "test loss 0.5000;"),
        ({"test_loss": None, "test_accuracy": None}, "train accuracy 75.00 %, train loss 0.2500 (there are no test"),
    ],
)
def test_an_accuracy_of_zero_is_one_and_a_regression_has_none(change, score):
    assert told(change).startswith(score)


def test_without_test_data_validation_counts():
    totals = RunTotals([1], [1.0])
    totals.add(record([rank()], validation_loss=0.125, validation_accuracy=0.5))
    assert told({"test_loss": None, "test_accuracy": None}, totals).startswith("validation accuracy 50.00 %, valid")


def test_others_in_the_way_are_said_to_ranks_that_noticed_them():
    others = "Other programs kept 1.2 of the 2 cores busy meanwhile, so "
    lines = told({"others_cores": 1.2}).splitlines()
    assert lines[-3].startswith(others)  # before what to try
    assert others in told({"others_cores": 1.2, "ranks": 1}, totals_of([rank()]))
    for quiet in ({"others_cores": 0.4}, {"others_cores": None}, {}):
        assert "Other programs" not in told(quiet)
    beside = told({"others_cores": 0.9, "ranks": 1}, totals_of([rank()]))
    assert "Other programs" not in beside  # a core for it, and one for them


def test_times_are_those_of_all_ranks():
    totals = totals_of([rank(0.0, compute_s=4.0, data_s=0.5), rank(2.0, compute_s=2.0, data_s=0.5)])
    assert (
        "The time of all 2 ranks: compute 60 %, sync 30 % (waiting 20 %, updating 10 %), data 10 %; the first sync "
        "took 1.0 ms, the others 15.1 ms each."
    ) in told(totals=totals)


def test_of_the_other_syncs_nothing_is_said_where_nothing_is_known():
    """Replicas meet once in many steps: the first wait may be all there was, and 0.0 us would be wrong."""
    totals = RunTotals([1], [0.5, 0.5])
    totals.add(replace(record([rank(0.001), rank(0.001)]), meetings=4))
    assert "; the first sync took 9.0 s." in told({"first_sync_s": 9.0}, totals)
    once = RunTotals([1], [0.5, 0.5])
    once.add(replace(record([rank(2.0), rank(2.0)]), meetings=1))
    assert "; the first sync took 1.0 ms." in told(totals=once)


def test_the_others_are_as_many_as_ranks_met():
    totals = RunTotals([1], [0.5, 0.5])
    totals.add(replace(record([rank(2.0), rank(2.0)]), meetings=4))
    steady = 2.0 + totals.mean_s("update_s") - 0.001
    assert f"the others {readable_s(steady / 3)} each" in told(totals=totals)


def test_what_stood_out_is_said():
    totals = RunTotals([1], [0.25] * 4)
    for _ in range(3):
        totals.add(
            record([rank(0.5, 3), rank(0.5, 2), rank(0.5, 3), rank(0.1, 92, host="b")], [[0.1], [0.0], [0.1], [0.8]])
        )
    lines = told({"ranks": 4, "shard_price": 1.25}, totals).splitlines()[2:5]
    assert lines == [
        "Rank 3 on b was waited for in 92 % of the steps; the others waited 1.2 s for it.",
        "Rank 3 contributed 80 % of the updates with 25 % of the samples (mean over epochs, and over parameters by "
        "their size): unbalanced data.",
        "8 shards cost 20 % of the computing time here; --shards 4 would be faster, at the price of other bits, the "
        "same on 1-4 ranks only.",
    ]


@pytest.mark.parametrize(
    ("ranks", "line"),
    [
        (5, "8 shards do not divide among 5 ranks, which idle 20 % of the computing time; 4 would be as fast."),
        (3, "8 shards do not divide among 3 ranks, which idle 11 % of the computing time."),
    ],
)
def test_idle_ranks_are_said_and_nobody_is_blamed_for_them(ranks, line):
    busy = [rank(0.0, 100), *[rank(1.0) for _ in range(ranks - 1)]]
    text = told({"ranks": ranks}, totals_of(busy))
    assert line in text
    assert "waited for" not in text


def test_a_small_price_is_not_worth_a_word():
    assert "shards cost" not in told({"shard_price": 1.1})
    assert "shards cost" not in told({"shard_price": 2.0, "shards": 2})
    assert "1 rank only" in told({"shard_price": 2.0, "ranks": 1}, totals_of([rank()]))
    assert told({"shard_price": 2.0, "allreduce": "ring"}).count("would be faster.") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00012, "120 us"), (0.0, "0.0 us"), (0.0815, "81.5 ms"), (0.5, "500 ms"), (75, "75.0 s"), (4000, "1:06:40")],
)
def test_seconds_are_readable(seconds, text):
    assert readable_s(seconds) == text


def test_what_synchronised_batch_norm_took_is_said():
    totals = totals_of([rank(compute_s=2.0, exchange_s=0.25), rank(compute_s=2.0, exchange_s=0.75)])
    assert "Synchronised batch norm took 25 % of the computing time (500 ms): its layers" in told(totals=totals)
    assert "batch norm" not in told()


def test_findings_are_the_verdict_without_its_last_line():
    totals = totals_of([rank(), rank()])
    assert findings(SUMMARY, totals, 2) == verdict(SUMMARY, totals, "runs/x", 2).splitlines()[:-1]
