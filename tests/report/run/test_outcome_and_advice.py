"""Sentences at the end of a run: how it ended, its energy, what stood out, what limited it, what to try next."""

from dataclasses import replace

import pytest

from support.report.run_records import SUMMARY, rank, record, totals_of
from unisono.report.run.aggregate import RunTotals
from unisono.report.run.outcome_and_advice import (
    advice,
    energy_lines,
    enough_ranks,
    findings,
    idle_share,
    live_shards,
    readable_j,
    readable_s,
    shard_cost,
    verdict,
)


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


def advised(change: dict, cores: int = 2, slow: int | None = None, hosts: int = 1, steps: int = 100) -> str:
    summary = SUMMARY | change
    summary["sync_s"] = summary["wait_s"] + summary["update_s"]
    ranks = [rank(0.0 if r == slow else 2.0, 100 * (r == slow), host=f"h{r % hosts}") for r in range(summary["ranks"])]
    return advice(summary, totals_of(ranks, steps), cores)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "computing, on all cores"),
        ({"ranks": 1}, "Try --ranks 2: the same bits, sooner"),
        ({"ranks": 1, "allreduce": "ring"}, "Try --ranks 2: sooner"),
        ({"ranks": 1, "batch_size_per_rank": 32}, "Try --ranks 2: sooner"),
        ({"ranks": 1, "threads": 2}, "on all cores"),
        ({"shard_price": 1.5}, "Try --shards 2: sooner, with other bits"),
        ({"shard_price": 1.05}, "on all cores"),
        ({"shard_price": 1.5, "shards": 2}, "on all cores"),
        ({"wait_s": 9.0, "ranks": 8}, "8 ranks share 2 cores. Try --ranks 2"),
        ({"wait_s": 9.0, "threads": 2}, "2 ranks x 2 threads share 2 cores. Try --ranks 1"),
        ({"wait_s": 9.0}, "a step is too short"),
        ({"wait_s": 0.6, "update_s": 0.5}, "a step is too short"),  # together more than computing
        ({"update_s": 9.0}, "the model is large for its batch"),
        ({"data_s": 9.0}, "gathering samples"),
    ],
)
def test_advice_names_the_limit(change, told):
    assert told in advised(change)


@pytest.mark.parametrize("change", [{"wait_s": 9.0}, {"update_s": 9.0}, {"data_s": 9.0}])
def test_a_batch_that_is_all_the_data_cannot_be_larger(change):
    assert "larger --batch-size" in advised(change)
    told = advised(change, steps=1)
    assert told.startswith("Limited by ")
    assert "--batch-size" not in told


@pytest.mark.parametrize(
    ("change", "more", "told"),
    [
        ({"wait_s": 9.0, "others_cores": 1.2}, {}, "other programs use the cores"),
        ({"wait_s": 9.0, "others_cores": 1.2}, {"cores": 8}, "a step is too short"),
        ({"others_cores": 1.2}, {}, "computing, on all cores"),
        ({"wait_s": 9.0, "ranks": 5}, {"cores": 8}, "Try --ranks 4"),  # the fifth has no shard
        ({"ranks": 2}, {"cores": 6}, "Try --ranks 4"),  # six ranks would be no faster than four
        ({"ranks": 4}, {"cores": 6}, "on all cores"),
        (
            {"wait_s": 9.0, "ranks": 4},
            {"slow": 3, "hosts": 2},
            "waiting for rank 3. See what else runs on its host, h1",
        ),
    ],
)
def test_advice_depends_on_the_machine(change, more, told):
    assert told in advised(change, **more)


@pytest.mark.parametrize(("live", "most", "enough"), [(8, 5, 4), (8, 3, 3), (8, 20, 8), (5, 4, 3), (1, 4, 1)])
def test_enough_ranks(live, most, enough):
    assert enough_ranks(live, most) == enough


def test_shards_in_numbers():
    assert live_shards(10, 8) == 5
    assert live_shards(64, 8) == 8
    assert idle_share(8, 4) == 0
    assert idle_share(8, 5) == pytest.approx(0.2)
    assert shard_cost({"shard_price": 1.25}) == pytest.approx(0.2)
    assert shard_cost({"shard_price": 0.9}) == 0.0
    assert shard_cost({}) == 0.0


@pytest.mark.parametrize(
    ("joules", "text"),
    [(18_700, "18.7 kJ"), (20_076, "20.1 kJ"), (0.000121, "121 uJ"), (3.25e6, "3.2 MJ"), (0, "0 J"), (1e-12, "0.0 nJ")],
)
def test_joules_are_readable(joules, text):
    assert readable_j(joules) == text


def test_an_estimate_says_so_and_counters_say_that_they_are_of_whole_nodes():
    (line,) = energy_lines({"energy_j": 40.0, "energy_source": "estimate", "energy_note": "5 s x 8 W"})
    assert line == "Energy: 40.0 J (estimate: 5 s x 8 W)."
    found = {"energy_j": 360.0, "energy_source": "rapl", "energy_per_sample_j": 0.5, "energy_idle_j": 80.0}
    (line,) = energy_lines(found | {"energy_note": ""})
    assert line == (
        "Energy: 360 J, 500 mJ a sample, of which 80.0 J would have been used by an idle machine (rapl: whole nodes)."
    )


def test_energy_that_is_not_known_or_is_of_a_part_is_said_with_the_reason():
    found = {"energy_j": None, "energy_source": "none", "energy_note": "no counters"}
    assert energy_lines(found) == ["Energy: not known (no counters)."]
    found = {"energy_j": 360.0, "energy_source": "rapl", "energy_note": "only 1 of 2 counters"}
    assert energy_lines(found) == ["Energy: 360 J (rapl: only 1 of 2 counters)."]


def test_ranks_that_did_nothing_are_named():
    assert energy_lines({"idle_ranks": [2]}) == ["Rank 2 did nothing: never as much as 5 % of a core was used."]
    assert energy_lines({"idle_ranks": [1, 2]})[0].startswith("Ranks 1, 2 did nothing")


@pytest.mark.parametrize("summary", [{}, {"energy_j": None}, {"energy_j": "much", "idle_ranks": "all"}])
def test_nothing_is_said_of_what_is_not_known(summary):
    assert energy_lines(summary) == []
