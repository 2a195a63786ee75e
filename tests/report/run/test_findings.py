"""A run counted again from the disk says what the terminal said."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import unisono
from support.report.made_run import PARAMETERS, make, record_of, summary_of
from unisono.data.shards import ShardPlan
from unisono.recipe import Recipe
from unisono.report.run.aggregate import RunTotals, sample_shares
from unisono.report.run.findings import (
    contributions_of,
    findings_of,
    hosts_of,
    last_size,
    plan_of,
    sample_shares_of,
    sizes_of,
    totals_of,
)
from unisono.report.run.outcome_and_advice import findings
from unisono.storage.rundir import RunDirectory


def test_the_findings_are_those_of_the_records_in_memory(tmp_path):
    run = unisono.load(make(tmp_path / "run", epochs=5, ranks=3))
    totals = RunTotals([1] * len(PARAMETERS), [22 / 63, 22 / 63, 19 / 63])
    for epoch in range(1, 6):
        totals.add(record_of(epoch, 5, 3))
    assert findings_of(run) == findings(summary_of(5, 3), totals, cores=3)
    assert findings_of(run)[-1].startswith("Limited by computing")


def test_the_same_times_and_contributions_are_counted(tmp_path):
    run = unisono.load(make(tmp_path / "run", epochs=4, ranks=2))
    totals = totals_of(run)
    assert (totals.steps, totals.samples, totals.ranks) == (4, 4 * 64, 2)
    assert totals.train_s == pytest.approx(4 * 0.001)
    assert totals.mean_s("data_s") == pytest.approx(4 * 5e-5)
    assert list(contributions_of(run)) == PARAMETERS
    assert hosts_of(run) == ["node0", "node0"]


def test_of_a_resumed_run_only_what_the_summary_timed_is_counted(tmp_path):
    resumed = {"resumed_from": "snapshots/5", "epochs_timed": 3}
    run = unisono.load(make(tmp_path / "run", epochs=8, ranks=2, **resumed))
    totals = totals_of(run)
    assert (totals.epochs, totals.steps, totals.samples) == (3, 3, 3 * 64)
    assert " since it was resumed (3 of 8 epochs), " in findings_of(run)[0]
    assert totals_of(unisono.load(make(tmp_path / "whole", epochs=8, ranks=2, epochs_timed=8))).epochs == 8


@pytest.mark.parametrize(("before", "after"), [(4, 3), (2, 3), (3, 1)])
def test_a_run_that_was_resumed_on_other_ranks_keeps_its_verdict(before, after, tmp_path):
    with RunDirectory.make(
        str(tmp_path / "run"), Recipe.from_options(epochs=8, ranks=after, shards=after)
    ) as directory:
        for epoch in range(1, 9):
            directory.add(record_of(epoch, 8, before if epoch <= 5 else after), PARAMETERS)
        summary = summary_of(8, after) | {"resumed_from": "snapshots/5", "epochs_timed": 3, "takeovers": 0}
        directory.finish(summary)
    run = unisono.load(directory.path)
    totals = RunTotals([1] * len(PARAMETERS), sample_shares(ShardPlan(64, 64, after, seed=0), after))
    for epoch in range(6, 9):
        totals.add(record_of(epoch, 8, after))
    assert findings_of(run) == findings(summary, totals, cores=after)
    assert findings_of(run)[-1].startswith("Limited by")
    assert (last_size(run), run.size) == (after, max(before, after))


def test_sizes_are_those_of_the_weights(tmp_path):
    path = make(tmp_path / "run", epochs=1)
    assert sizes_of(unisono.load(path)) == dict.fromkeys(PARAMETERS, 1)
    save_file({"0.W": np.zeros((64, 8)), "0.b": np.zeros(8)}, path / "weights.safetensors")
    assert sizes_of(unisono.load(path)) == {"0.W": 512, "0.b": 8, "2.W": 1, "2.b": 1}
    (path / "weights.safetensors").write_bytes(b"<script>")
    assert sizes_of(unisono.load(path)) == dict.fromkeys(PARAMETERS, 1)


def test_steps_are_known_without_a_summary(tmp_path):
    path = make(tmp_path / "run", epochs=2, ranks=4)
    (path / "summary.json").unlink()
    plan = plan_of(unisono.load(path))
    assert (plan.steps_per_epoch, plan.global_batch, plan.shards) == (1, 64, 4)


def test_replicas_were_dealt_the_steps_up_to_their_last_meeting(tmp_path):
    # 64 samples in batches of 8 and shards of 4: eight steps, of which the last two were walked alone.
    path = make(tmp_path / "run", epochs=1, ranks=2, global_batch=8)
    recipe = (path / "recipe.toml").read_text().replace('name = "sync"', 'name = "local"')
    (path / "recipe.toml").write_text(recipe.replace('sync_every = ""', "sync_every = 3"))
    run = unisono.load(path)
    assert sample_shares_of(run, 2) == [0.5, 0.5]
    # Three ragged samples at the end: the last meeting is that of steps of 8, 8 and 3 samples.
    ragged = (path / "ranks.csv").read_text().replace(",32,", ",33,", 1).replace(",32,", ",34,", 1)
    (path / "ranks.csv").write_text(ragged)
    assert sample_shares_of(unisono.load(path), 2) == [(4 + 4 + 3) / 19, (4 + 4) / 19]


@pytest.mark.parametrize(
    "change",
    [
        {"status": "failed"}, {"train_loss": None}, {"wall_s": "<b>"}, {"stopped_early": ["x"], "epochs": 10**400},
        {"shards": 10**18}, {"shards": -1}, {"global_batch": 10**30}, {"machine": "x", "threads": 0},
        {"weights_sha256": None, "test_loss": {}}, {"takeovers": "x"},
    ],
)  # fmt: skip
def test_a_summary_of_nonsense_gives_no_findings_or_some_but_no_error(change, tmp_path):
    path = make(tmp_path / "run", epochs=3)
    summary = json.loads((path / "summary.json").read_text()) | change
    (path / "summary.json").write_text(json.dumps(summary))
    assert isinstance(findings_of(unisono.load(path)), list)
