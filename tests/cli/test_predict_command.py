"""`unisono predict` as a user meets it."""

import json

import pytest

import unisono
from support.cli.forked_command import forked
from support.cli.train_command import started
from support.report.made_run import make
from support.report.pages import ABOUT, titles_of
from unisono.cli.main import app
from unisono.report.html.document import sections_of
from unisono.study.cell_process import read_summary


def test_a_rate_that_is_given_needs_no_runs(tmp_path):
    given = ["--samples-per-s", "5000", "--nodes", "2..8", "--network", "1gbit,100us", "--network", "100gbit,1us"]
    ended = started("predict", *given, "--out", "here", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Nothing was measured here" in ended.stdout
    rows = json.loads((tmp_path / "here/predict.json").read_text())
    assert [(row["network"], row["nodes"]) for row in rows] == [
        (network, nodes) for network in ("1gbit,100us", "100gbit,1us") for nodes in (1, 2, 4, 8)
    ]
    assert json.loads((tmp_path / "here/model.json").read_text())["costs"]["sample_s"] == 1 / 5000
    assert titles_of(tmp_path / "here") == ["Prediction", *ABOUT]


def test_more_ranks_than_samples_is_a_row_with_its_reason(tmp_path):
    ended = forked("predict", "--samples-per-s", "5000", "--ranks-per-node", "100", "--batch-size", "64", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "there is no number of nodes on which half of each would be put to use" in ended.stdout
    assert "a batch of 64 has no work for 100 ranks" in ended.stdout


def test_short_runs_calibrate_and_others_check(tmp_path, monkeypatch, capsys):
    """The runs are made up: every step takes a millisecond, on any number of ranks."""

    def run_cell(cell, recipe, run, timeout_s, on_line):
        make(run, 6, cell.recipe.ranks.count)
        return {"status": "finished", "reason": "", "exit_code": 0, "elapsed_s": 1.0, "summary": read_summary(run)}

    monkeypatch.setattr("unisono.study.study.run_cell", run_cell)
    monkeypatch.setattr("unisono.measure.prediction.calibration.usable_cores", lambda: 2)  # 4 ranks share them
    monkeypatch.chdir(tmp_path)
    app(["predict", "--repeat", "1", "--nodes", "2"], exit_on_error=False, result_action="return_value")
    shown = capsys.readouterr().out
    assert shown.count("held out") == 5
    assert "On 5 held-out points here the model is off by" in shown
    (study,) = (tmp_path / "studies").iterdir()
    model = json.loads((study / "model.json").read_text())
    assert [point["held_out"] for point in model["points"]] == [False] * 5 + [True] * 4 + [False, True]
    assert model["points"][0]["error"] == pytest.approx(0.0, abs=0.05)
    section = sections_of([unisono.load(study)])[0]
    assert any("On 5 held-out points" in getattr(block, "text", "") for block in section.blocks)
