from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from support.report.made_run import make
from unisono.errors import UserError
from unisono.measure.prediction.calibration import HELD_OUT, calibrate, calibration, point_of
from unisono.measure.prediction.cost import Costs, Work, parse
from unisono.measure.prediction.predict import PredictionRequest, PredictOptions, node_counts, rows_of
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.report.studies.predict import checks, compact, table, words_of
from unisono.study.cells import Cell

COSTS = Costs(sample_s=1e-3, jitter_s=1e-4, cores=2)
WORK = Work(batch=64, shards=8, nbytes=4_000_000, samples=6400)
SLOW = parse("1gbit,100us")


def test_nodes_are_doubled_or_listed():
    assert node_counts("2..16") == [2, 4, 8, 16]
    assert node_counts("3..20") == [3, 6, 12, 20]
    assert node_counts("5,1") == [5, 1]
    for text in ("0..4", "8..4", "two", "0", "2..99999999"):
        with pytest.raises(UserError, match="--nodes"):
            node_counts(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ranks_per_node": -1}, "--ranks-per-node"),
        ({"samples_per_s": -1.0}, "--samples-per-s"),
        ({"jitter": 1.0}, "--j"),
    ],
)
def test_options_that_cannot_be(given, message):
    with pytest.raises(UserError, match=message):
        PredictOptions(**given)


def test_strong_scaling_runs_out_of_work_and_weak_does_not():
    strong = rows_of(COSTS, WORK, PredictionRequest([32, 64], 2, [SLOW]))
    assert [row["nodes"] for row in strong] == [1, 32, 64]
    assert strong[2]["reason"] == "a batch of 64 has no work for 128 ranks"
    weak = rows_of(COSTS, WORK, PredictionRequest([32, 64], 2, [SLOW], weak=True))
    assert [row["batch"] for row in weak] == [64, 32 * 64, 64 * 64]
    assert weak[0]["efficiency"] == 1.0 > weak[1]["efficiency"]


def test_what_is_said_of_rows_and_points():
    rows = rows_of(COSTS, WORK, PredictionRequest([2, 4, 8, 128], 2, [SLOW]))
    point = {"name": "a", "predicted_s": 1.1, "measured_s": 1.0, "error": 0.1, "held_out": True}
    words = words_of(rows, [point, point | {"error": -0.3}, point | {"error": 9.0, "held_out": False}])
    assert words[0].startswith("1gbit,100us: sync is worth half of its nodes or more up to 1 of them")
    assert words[1] == "128 nodes: a batch of 64 has no work for 256 ranks."
    assert "On 2 held-out points here the model is off by 20 % on average, 30 % at most: NOT within" in words[2]
    assert "Nothing was measured here" in words_of(rows, [])[2]
    assert "| 2 | 64 | doubling |" in table(rows).markdown(rows)
    assert "+10 %" in checks([point]).markdown([point])
    assert [compact(value) for value in (950.4, 12345, 2_210_844, 3e9)] == ["950", "12,345", "2.21M", "3G"]


def test_beyond_one_node_is_no_plural():
    row = {"network": "slow", "best": "sync", "efficiency": 1.0}
    rows = [row | {"nodes": 1, "samples_per_s": 9.0}, row | {"nodes": 2, "samples_per_s": 8.0}]
    assert "; beyond 1 node it gets slower." in words_of(rows, [])[0]


def test_where_no_number_of_nodes_is_worth_it_that_is_said():
    rows = [{"network": "slow", "nodes": 2, "reason": "a batch of 32 has no work for 128 ranks"}]
    assert words_of(rows, [])[:2] == [
        "slow: there is no number of nodes on which half of each would be put to use.",
        "2 nodes: a batch of 32 has no work for 128 ranks.",
    ]


def test_threads_that_leave_no_core_for_a_second_rank_are_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr("unisono.measure.prediction.calibration.usable_cores", lambda: 2)
    with pytest.raises(UserError, match=r"--threads 2: it measures 2 ranks"):
        calibration(Recipe.from_options(threads=2), 1000)
    monkeypatch.setattr("unisono.measure.prediction.calibration.usable_cores", lambda: 4)
    assert calibration(Recipe.from_options(threads=2), 1000)


def test_runs_vary_what_the_constants_vary_with(monkeypatch):
    monkeypatch.setattr("unisono.measure.prediction.calibration.usable_cores", lambda: 2)
    cells = calibration(Recipe(), samples=1437)
    fit = [cell.recipe for cell in cells if HELD_OUT not in cell.labels]
    assert {recipe.ranks.count for recipe in fit} == {1, 2, 4}
    assert {recipe.strategy.name for recipe in fit} == {"sync", "local"}
    assert len({recipe.learning.batch_size for recipe in fit}) == len({recipe.ranks.shards for recipe in fit}) == 2
    assert {recipe.learning.epochs for recipe in fit} == {40}
    assert len({cell.digest for cell in cells}) == len(cells)
    peer = load("r4", {"strategy": "ddp", "scale_lr": "linear"})
    assert [cell.recipe.strategy.name for cell in calibration(peer, 50000)] == ["sync"] * 9 + ["local"] * 2
    # 8 shards are not enough to share so many cores.
    monkeypatch.setattr("unisono.measure.prediction.calibration.usable_cores", lambda: 64)
    assert {cell.recipe.ranks.count for cell in calibration(Recipe(), samples=1437)} == {1, 2}
    full = calibration(Recipe.from_options(batch_size="full"), samples=100)
    assert max(cell.recipe.learning.batch_size for cell in full) <= 100


def test_points_are_the_steps_of_runs(tmp_path):
    make(tmp_path / "run", 20, 2)
    (cell, *_) = [cell for cell in calibration(Recipe(), 1437) if cell.recipe.ranks.count == 2]
    point = point_of(cell, [tmp_path / "run"], nbytes=100)
    assert point.step_s == pytest.approx(0.001)
    assert point.compute_s + point.wait_s == pytest.approx(8e-4, rel=0.05)
    assert (point.work.batch, point.ranks, point.work.nbytes) == (64, 2, 100)


def test_points_tell_who_else_was_busy(tmp_path):
    cells = calibration(Recipe(), 1437)
    for cell in cells:
        make(tmp_path / cell.slug, 20, cell.recipe.ranks.count)
    found = [
        {"digest": cell.digest, "repeat": 0, "status": "finished", "run": cell.slug, "others_cores": 0.25 * at}
        for at, cell in enumerate(cells)
    ]
    _, points = calibrate(cells, found, tmp_path, 100)
    assert [point["others_cores_high"] for point in points] == [0.25 * at for at in range(len(cells))]


def test_a_run_that_is_missing_is_named(tmp_path):
    cells = calibration(Recipe(), 1437)
    with pytest.raises(UserError, match="cannot be calibrated without ranks=1 batch_size=64 shards=8: not run yet"):
        calibrate(cells, [], tmp_path, 100)


WHOLE = {"epochs": 2, "steps": 26, "samples": 624}


@pytest.mark.parametrize(
    ("summary", "times", "told"),
    [
        ({"steps": 26, "samples": 624}, [1.5, 1.25], "epochs in its summary is no number"),
        (WHOLE | {"steps": None}, [1.5, 1.25], "steps in its summary is no number"),
        (WHOLE | {"epochs": 0}, [1.5, 1.25], "epochs in its summary is no number"),
        (WHOLE, [], "no epochs"),
    ],
)
def test_a_run_that_lacks_what_a_prediction_needs_is_named(summary, times, told, monkeypatch):
    run = SimpleNamespace(summary=summary, numbers=lambda name: np.array(times), by_rank=lambda name: np.ones((2, 3)))
    monkeypatch.setattr("unisono.measure.prediction.calibration.load", lambda path: run)
    with pytest.raises(UserError, match=f"the run runs/a is damaged: {told}\nHINT: remove its line from cells.jsonl"):
        point_of(Cell({}, Recipe()), [Path("runs/a")], 13)
