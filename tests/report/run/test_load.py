"""unisono.load: the records of a run as columns, whatever state its directory is in."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unisono
from support.report.made_run import make
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.report.run import load as module
from unisono.runs.lifecycle import run_recipe

ROOT = Path(__file__).parents[3]
AGAIN = "the same command goes on"


def test_a_run_as_columns(tmp_path):
    run = unisono.load(make(tmp_path / "run", epochs=6, ranks=3))
    assert run.metrics["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert run.numbers("test_accuracy").shape == (6,)
    assert run.by_rank("compute_s").shape == (6, 3)
    np.testing.assert_allclose(run.by_rank("contribution:0.W").sum(axis=1), 1, atol=0.5)
    assert run.by_rank("samples").sum() == 6 * 3 * 21
    assert (run.recipe["epochs"], run.summary["status"], run.name, run.size) == (6, "finished", "run", 3)
    assert [event["kind"] for event in run.events] == ["death", "join", "death", "newcomer", "snapshot"]
    assert run.problems == []


def test_by_rank_puts_every_line_where_it_belongs(tmp_path):
    path = make(tmp_path / "run", epochs=3, ranks=2)
    lines = (path / "ranks.csv").read_text().splitlines()
    (path / "ranks.csv").write_text("\n".join([lines[0], *reversed(lines[2:])]) + "\n")  # the first line is lost
    run = unisono.load(path)
    assert np.isnan(run.by_rank("wait_s")[0, 0])
    assert np.isfinite(run.by_rank("wait_s")).sum() == 5
    assert run.by_rank("last_steps")[1:].tolist() == [[1, 0], [0, 1]]
    assert np.isnan(run.by_rank("host")).all()
    assert run.problems == ["ranks.csv: 1 of 3 epochs lack a rank"]


def test_a_column_that_no_run_has_is_a_mistake_and_the_columns_are_listed(tmp_path):
    run = unisono.load(make(tmp_path / "run"))
    with pytest.raises(UserError, match=r"unknown column of ranks 'wait'; there are: wait_s, epoch, rank, host, "):
        run.by_rank("wait")
    with pytest.raises(UserError, match="did you mean 'test_accuracy'"):
        run.numbers("test_acuracy")
    assert np.isnan(run.numbers("validation_loss")).all()  # which this run happens not to have
    (tmp_path / "run" / "ranks.csv").unlink()
    without = unisono.load(tmp_path / "run")
    assert without.by_rank("wait_s").shape == (8, 0)
    with pytest.raises(UserError, match="there are: wait_s, epoch, rank"):
        without.by_rank("wait")


def test_the_columns_that_a_run_may_have_are_those_that_runs_write(tmp_path):
    recipe = Recipe.from_options(
        ranks=2, epochs=1, model="mlp:8", batch_size=16, data="synthetic:classes=4,rows=64,features=8,test_rows=32"
    )
    metrics, ranks = {"sent_bytes_per_step"}, set()  # which only several machines write
    for name, options in {"sync": {}, "held out": {"validation": 0.25}, "async": {"strategy": "async"}}.items():
        run_recipe(recipe.with_options(out=str(tmp_path / name), **options))
        found = unisono.load(tmp_path / name)
        metrics |= set(found.metrics)
        ranks |= {column for column in found.ranks if ":" not in column}  # of each parameter
    assert metrics == set(module.OF_EPOCHS)
    assert ranks - {"wait_master_0_s"} == set(module.OF_RANKS)  # of each master


def test_a_run_resumed_with_more_ranks_lacks_none(tmp_path):
    path, other = make(tmp_path / "run", epochs=3, ranks=2), make(tmp_path / "other", epochs=6, ranks=4)
    later = [line for line in (other / "ranks.csv").read_text().splitlines(keepends=True)[1:] if int(line[0]) > 3]
    with open(path / "ranks.csv", "a") as file:
        file.writelines(later)
    (path / "metrics.jsonl").write_text((other / "metrics.jsonl").read_text())
    run = unisono.load(path)
    assert run.problems == []
    assert np.isfinite(run.by_rank("wait_s")).sum(axis=1).tolist() == [2, 2, 2, 4, 4, 4]
    lines = (path / "ranks.csv").read_text().splitlines(keepends=True)
    (path / "ranks.csv").write_text("".join(lines[:-2] + lines[-1:]))  # rank 2 of the last epoch
    assert unisono.load(path).problems == ["ranks.csv: 1 of 6 epochs lack a rank"]


def test_a_run_that_goes_on_has_no_summary(tmp_path):
    path = make(tmp_path / "run")
    for name in ("summary.json", "ranks.csv"):
        (path / name).unlink()
    run = unisono.load(path)
    assert run.summary == {}
    assert run.size == 0
    assert run.by_rank("wait_s").shape == (8, 0)
    assert [told.split(" is missing")[0] for told in run.problems] == ["ranks.csv", "summary.json"]


def test_records_of_no_epoch_are_left_out(tmp_path):
    path = make(tmp_path / "run", epochs=2)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": "third"}\n{"epoch": 1e300}\n{"epoch": -1}\n{"epoch": true}\n')
    run = unisono.load(path)
    assert run.metrics["epoch"].tolist() == [1, 2]
    assert run.problems == ["metrics.jsonl: 4 records are of no epoch and left out"]


def test_ranks_that_cannot_be_are_no_ranks(tmp_path):
    path = make(tmp_path / "run", epochs=2)
    (path / "ranks.csv").write_text("epoch,rank,wait_s\n1,1000000000,0.5\n")
    assert unisono.load(path).size == 0


def test_a_study_is_read_from_its_directory_or_its_file(tmp_path):
    (tmp_path / "bench.json").write_text('[{"ranks": 2}]')
    for path in (tmp_path, tmp_path / "bench.json"):
        run = unisono.load(path)
        assert run.studies == {"bench": [{"ranks": 2}]}
        assert not run.trained
        assert run.problems == []


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("nothing", "there is no run"),
        ("file", "is a file"),
        ("empty", "is no run: it has no recipe.toml"),
        (".", "give one of the runs in it: run"),
    ],
)
def test_what_is_no_run_is_refused(path, told, tmp_path):
    make(tmp_path / "run", epochs=1)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=told):
        unisono.load(tmp_path / path)


def refusal_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        unisono.load(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("about", "cells", "told", "hint"),
    [
        (
            '{"command": "unisono predict --nodes 2..4 --out study"}', "", "no run of it has ended yet",
            "go on with: unisono predict --nodes 2..4 --out study",
        ),
        ('{"command": 7}', '{"status": "finished"}\n{"status": "failed"}\n{"st', "1 run of it has ended well", AGAIN),
        ('{"command": "unisono \\u001b[2J"}', '{"status": "finished"}\n' * 3, "3 runs of it have ended well", AGAIN),
        ("{", "damaged", "no run of it has ended yet", AGAIN),
    ],
)  # fmt: skip
def test_a_study_that_has_nothing_to_show_yet_is_told_as_what_it_is(about, cells, told, hint, tmp_path):
    study = tmp_path / "study"
    study.mkdir()
    (study / "study.json").write_text('{"kind": "predict", "studied": {}}')
    (study / "about.json").write_text(about)
    (study / "cells.jsonl").write_text(cells)
    assert refusal_of(study) == (
        f"{study} is a study of unisono predict that has nothing to show yet: {told}\n"
        f"HINT: it may be going on; else {hint}"
    )


@pytest.mark.parametrize(
    ("about", "what", "hint"),
    [
        ('{"command": "unisono bench --out o"}', "a study of unisono bench", "run it again: unisono bench --out o"),
        ('{"command": "unisono \\u001b[2J"}', "a study", "run it again"),
        ('{"command": "unisono"}', "a study", "run it again: unisono"),
        ('{"comm', "a study", "run it again"),
    ],
)
def test_a_study_that_keeps_nothing_on_its_way_is_told_as_what_it_is(about, what, hint, tmp_path):
    (tmp_path / "about.json").write_text(about)
    assert refusal_of(tmp_path) == (
        f"{tmp_path} is {what} that has nothing to show yet: nothing was measured to the end\n"
        f"HINT: it may be going on; else {hint}"
    )


def test_frames_are_the_same_columns(tmp_path):
    pytest.importorskip("pandas")
    run = unisono.load(make(tmp_path / "run", epochs=4, ranks=2))
    frame = run.frame("ranks")
    assert frame.shape[0] == 8
    np.testing.assert_array_equal(frame.pivot(index="epoch", columns="rank", values="wait_s"), run.by_rank("wait_s"))
    assert list(run.frame("events").kind) == ["death", "join", "death", "newcomer", "snapshot"]
    with pytest.raises(UserError, match="there are: ranks, metrics, events"):
        run.frame("rank")


def test_without_pandas_frame_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install pandas"):
        unisono.load(make(tmp_path / "run", epochs=1)).frame("metrics")


def test_the_example_of_the_documentation_runs(tmp_path):
    make(tmp_path / "runs/mine", epochs=4, ranks=2)
    (code,) = re.findall(r"```python\n(import unisono\n.*?)```", (ROOT / "docs/report.md").read_text(), re.DOTALL)
    if "frame(" in code:
        pytest.importorskip("pandas")
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "0.97" in ended.stdout
