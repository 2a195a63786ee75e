"""`unisono train --strategy async` as a user meets it."""

import csv
from functools import partial

import pytest

from support.cli.train_command import COMMAND, summary_of
from support.cli.train_command import train as train_any
from unisono.environment.os_environ import mpi_environment
from unisono.errors import RankFailed, UserError
from unisono.launch.launcher_commands import mpirun
from unisono.recipe import Recipe
from unisono.runs.early_end import user_error_of
from unisono.runs.run_modes.base import refuse_snapshots

ASYNC = ["--strategy", "async", "--optimizer", "sgd", "--batch-size", "16"]
BRIEF = ["--epochs", "2", "--lr", "0.5"]
train = partial(train_any, *ASYNC)


def test_what_a_run_leaves_and_how_it_is_repeated(tmp_path):
    first = train(*BRIEF, "--ranks", "5", "--masters", "2", "--deal", "dynamic", "--out", "one", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "asynchronous: 2 masters, 3 workers, rule safe; 91 pushes of 16 samples an epoch" in first.stdout
    assert "Masters were busy " in first.stdout
    summary = summary_of(tmp_path / "one")
    assert (summary["strategy"], summary["masters"], summary["workers"]) == ("async", 2, 3)
    assert (summary["pushes"], summary["updates"], summary["steps"]) == (182, 182, 182)
    assert sum(summary["staleness_counts"]) == 182
    assert summary["test_accuracy"] > 0.5
    with open(tmp_path / "one" / "ranks.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 5
    assert [int(row["pushes"]) for row in rows[:2]] == [0, 0]
    assert sum(int(row["pushes"]) for row in rows) == 182
    assert all(float(row["busy_s"]) > 0 for row in rows if int(row["rank"]) < 2)
    assert all(float(row["wait_master_1_s"]) > 0 for row in rows if int(row["rank"]) >= 2)
    assert {"staleness_mean", "staleness_max", "drops", "clips"} <= rows[0].keys()
    again = train(*BRIEF, "--ranks", "5", "--masters", "2", "--order", "one/pushes.csv", "--out", "two", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "two" / "pushes.csv").read_text() == (tmp_path / "one" / "pushes.csv").read_text()
    assert summary_of(tmp_path / "two")["weights_sha256"] == summary["weights_sha256"]


def test_under_mpirun_the_bits_are_those_of_the_arena(tmp_path):
    options = [*BRIEF, "--masters", "2", "--order", "round-robin", "--model", "bn-mlp:32"]
    shared = train(*options, "--ranks", "4", "--out", "shared", cwd=tmp_path)
    assert shared.returncode == 0, shared.stderr
    ended = train(*options, "--out", "mpi", cwd=tmp_path, command=mpirun(4, COMMAND), environment=mpi_environment())
    assert ended.returncode == 0, ended.stderr
    assert "mpi messages" in ended.stdout
    assert summary_of(tmp_path / "mpi")["weights_sha256"] == summary_of(tmp_path / "shared")["weights_sha256"]


def test_plain_collapses_where_safe_learns(tmp_path):
    common = ["--ranks", "9", "--order", "round-robin", "--activation", "sigmoid", "--lr", "2", "--epochs", "4"]
    plain = train(*common, "--staleness-rule", "plain", "--out", "plain", cwd=tmp_path)
    assert "Try --staleness-rule safe or softsync" in plain.stdout, plain.stdout
    train(*common, "--out", "safe", cwd=tmp_path)
    assert summary_of(tmp_path / "plain")["test_accuracy"] < 0.2
    assert summary_of(tmp_path / "safe")["test_accuracy"] > 0.7


def test_over_gloo_without_a_launcher_there_are_no_snapshots_and_the_hint_says_where_there_are():
    with pytest.raises(
        UserError, match="HINT: leave --transport out: unisono train --ranks 4; or start it with mpirun"
    ):
        refuse_snapshots(Recipe.from_options(strategy="async", ranks=4, snapshot_every="1epochs"))


def test_a_rank_that_died_without_a_word_is_named():
    assert str(user_error_of(RankFailed(2, "was killed by SIGKILL"))) == "rank 2: was killed by SIGKILL"
    said = RankFailed(2, "the loss became nan", kind="UnisonoError")
    assert str(user_error_of(said)) == "the loss became nan"
