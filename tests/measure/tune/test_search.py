"""Trials in processes of their own, kept as soon as they are over; memory that is limited; what is foretold."""

import pytest

from unisono.measure.tune import search, time_to_accuracy
from unisono.measure.tune.candidates import candidates_of
from unisono.measure.tune.search import TrialOptions, TuneOptions, foretold_bytes, run_trial, score_of, tune
from unisono.measure.tune.time_to_accuracy import train_to_target
from unisono.measure.tune.worker import trial
from unisono.recipe import Recipe
from unisono.study.cells import Cell, values_of
from unisono.study.study_directory import Records

MANY = 1 << 33


def cell_of(**values):
    return Cell({"ranks": f"{values.get('ranks', 2)}", "threads": "1"}, Recipe.from_options(**values))


def measured(speed):
    """What `run_trial` would say."""
    found = {"samples_per_s": speed, "joules_per_sample": 0.5, "memory_bytes": 100, "shards": 8, "global_batch": 64}
    found |= {"energy_source": "estimate"}
    return {"status": "finished", "reason": "", "exit_code": 0, **found}


def fake(**labels):
    """A line of the records."""
    return {"what": "trial", "labels": {"ranks": "1", **labels}, "seconds": 1.0, "elapsed_s": 0.0, **measured(10.0)}


def test_a_trial_measures_steps_energy_and_memory():
    record = run_trial(cell_of(ranks=2, model="bn-mlp:8"), 0.05, MANY)
    assert record["status"] == "finished", record["reason"]
    assert record["samples_per_s"] > 0
    assert record["joules_per_sample"] > 0
    assert record["energy_source"] in ("estimate", "rapl")
    assert record["memory_bytes"] > 1 << 20
    assert (record["global_batch"], record["shards"]) == (64, 8)


OWN = """
import os
import numpy as np
def data():
    print({"rows": 256}, flush=True)
    print('{"error": "none of ours"}', flush=True)
    os.write(1, b"L\\xe4ufe\\n")
    x = np.random.default_rng(0).standard_normal((256, 8))
    y = (x[:, 0] > 0).astype(int)
    return {"train_x": x, "train_y": y, "test_x": x, "test_y": y}
"""


def test_what_the_user_s_code_prints_is_no_answer(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    record = run_trial(cell_of(ranks=1, data=f"{tmp_path}/own.py:data"), 0.05, MANY)
    assert record["status"] == "finished", record["reason"]
    assert record["samples_per_s"] > 0


def test_what_takes_too_much_memory_is_a_row_with_a_reason():
    record = run_trial(cell_of(model="mlp:20000,3000"), 0.05, limit_bytes=60 << 20)
    assert record["status"] == "failed"
    assert "Unable to allocate" in record["reason"]
    assert "Traceback" not in record["reason"]


def test_a_setting_that_cannot_be_is_a_row_with_a_reason():
    record = run_trial(cell_of(ranks=9, shards=8), 0.05, MANY)
    assert (record["status"], record["exit_code"]) == ("failed", 2)
    assert "--shards 8 is less than --ranks 9" in record["reason"]


def test_energy_of_nobody_s_watts_is_unknown():
    values = values_of(Recipe.from_options(ranks=1, watts_per_core=0.0))
    record = trial({"recipe": values, "seconds": 0.02, "limit_bytes": MANY})
    assert record["energy_source"] in ("none", "rapl")
    if record["energy_source"] == "none":
        assert score_of(record | {"status": "finished"}, "energy") is None


def test_the_best_of_the_trials_is_found_and_a_second_start_runs_none(tmp_path, monkeypatch):
    speeds, ran = {"1": 10.0, "2": 19.0}, []

    def fake_trial(cell, seconds, limit_bytes):
        ran.append(cell.name)
        return measured(speeds[cell.labels["ranks"]])

    monkeypatch.setattr(search, "run_trial", fake_trial)
    options = TuneOptions(ranks="1,2", threads="1")
    cells = candidates_of(Recipe(), options, cores=2)
    with Records.open(tmp_path / "one", "tune", {}) as records:
        outcome = tune(records, cells, TrialOptions(options, MANY))
        assert outcome.best == cells[1].digest
        assert len(records.all) == len(ran) == 8
    with Records.open(tmp_path / "one", "tune", {}) as records:
        assert tune(records, cells, TrialOptions(options, MANY)).best == cells[1].digest
    assert len(ran) == 8


@pytest.mark.parametrize("summary", [{"train_s": 3.0, "stopped_early": "reached"}, {}], ids=["reached", "missed"])
def test_a_second_start_after_a_training_goes_on_within_its_time(tmp_path, monkeypatch, summary):
    """A training takes no memory that is known, and leaves no time that a trial could use."""
    ran, now = [], iter(range(10_000))

    def fake_trial(cell, seconds, limit_bytes):
        ran.append(cell.name)
        return measured(10.0)

    def fake_run(cell, recipe, run, timeout_s):
        status = "finished" if summary else "failed"
        return {"status": status, "reason": "", "exit_code": 1, "elapsed_s": 1.0, "summary": summary}

    monkeypatch.setattr(search, "run_trial", fake_trial)
    monkeypatch.setattr(time_to_accuracy, "run_cell", fake_run)
    monkeypatch.setattr(search.time, "monotonic", lambda: float(next(now)))  # a second each time that it is asked for
    options = TuneOptions(ranks="1,2", threads="1", seconds=20)
    cells = candidates_of(Recipe.from_options(target_accuracy=0.5), options, cores=2)
    for start in range(3):
        with Records.open(tmp_path / "one", "tune", {}) as records:
            assert not tune(records, cells, TrialOptions(options, MANY)).complete
            train_to_target(records, cells[1:], 100.0)
        assert 2 <= len(ran) < 8, start
        assert len(ran) == sum("train_s" not in record for record in records.all)
    assert len(records.all) == len(ran) + 1


def test_trials_that_would_take_too_much_are_not_started(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "run_trial", lambda cell, seconds, limit: measured(10.0) | {"memory_bytes": 600})
    options = TuneOptions(ranks="1,2", threads="1")
    cells = candidates_of(Recipe(), options, cores=2)
    with Records.open(tmp_path / "one", "tune", {}) as records:
        outcome = tune(records, cells, TrialOptions(options, limit_bytes=1000))
        assert outcome.best == cells[0].digest
        (failed,) = [record for record in records.all if record["status"] == "failed"]
    assert "--memory" in failed["reason"]
    assert failed["labels"]["ranks"] == "2"


@pytest.mark.parametrize(("more", "retry"), [(1 << 40, False), (1000, True), (1000, False)])
def test_what_was_too_large_is_tried_again_with_more_memory_or_when_asked(tmp_path, monkeypatch, more, retry):
    monkeypatch.setattr(search, "run_trial", lambda cell, seconds, limit: measured(10.0) | {"memory_bytes": 600})
    options = TuneOptions(ranks="1,2", threads="1", retry=retry)
    cells = candidates_of(Recipe(), options, cores=2)
    for limit in (1000, more):
        with Records.open(tmp_path / "one", "tune", {}) as records:
            tune(records, cells, TrialOptions(options, limit_bytes=limit))
    of_two = [record["status"] for record in records.all if record["labels"]["ranks"] == "2"]
    assert of_two[:2] == (["failed", "finished"] if more > 1000 else ["failed"] * (1 + retry))


def test_memory_is_foretold_from_smaller_settings():
    small = [fake(batch_size="64")]
    assert foretold_bytes(Cell({"ranks": "4", "batch_size": "128"}, Recipe.from_options(ranks=4)), small) == 800
    assert foretold_bytes(Cell({"ranks": "4", "batch_size": "32"}, Recipe.from_options(ranks=4)), small) == 400
    assert foretold_bytes(Cell({"ranks": "4"}, Recipe.from_options(ranks=4)), [fake(ranks="8")]) == 0


def test_the_time_to_an_accuracy_counts_for_those_that_reach_it(tmp_path):
    easy = cell_of(ranks=1, epochs=5, target_accuracy=0.5, patience=1)
    hard = cell_of(ranks=1, epochs=1, target_accuracy=0.9999, patience=1, lr=1e-6)
    told = []
    with Records.open(tmp_path / "one", "tune", {}) as records:
        reached = train_to_target(records, [easy, hard], 100.0, told.append)
        assert list(reached) == [easy.digest]
        assert "did not reach 0.9999" in told[1]["reason"]
        assert train_to_target(records, [easy, hard], -1.0, told.append) == reached  # found again
    assert len(told) == 2


def test_who_had_no_time_is_tried_again_when_there_is_more(tmp_path, monkeypatch):
    ran = []

    def fake_run(cell, recipe, run, timeout_s):
        ran.append(timeout_s)
        ended = {"status": "failed", "reason": "it took longer (--timeout-s)", "exit_code": None, "elapsed_s": 1.0}
        reached = {"status": "finished", "reason": "", "exit_code": 0, "elapsed_s": 1.0}
        return reached | {"summary": {"train_s": 3.0, "stopped_early": "reached"}} if timeout_s > 500 else ended

    monkeypatch.setattr(time_to_accuracy, "run_cell", fake_run)
    cell = cell_of(ranks=1, target_accuracy=0.5)
    with Records.open(tmp_path / "one", "tune", {}) as records:
        assert train_to_target(records, [cell], -1.0) == {}
        assert train_to_target(records, [cell], -1.0) == {}
        assert ran == []
        assert train_to_target(records, [cell], 100.0) == {}
        assert records.all[-1]["reason"] == "it was not there after the 100 s that were left (--seconds)"
        assert train_to_target(records, [cell], 50.0) == {}
        assert len(ran) == 1
        assert train_to_target(records, [cell], 1000.0) == {cell.digest: 3.0}
    assert len(records.all) == 3


@pytest.mark.parametrize(("objective", "score"), [("throughput", 10.0), ("energy", 2.0)])
def test_scores(objective, score):
    assert score_of(fake(), objective) == score
    assert score_of(fake() | {"status": "failed"}, objective) is None
