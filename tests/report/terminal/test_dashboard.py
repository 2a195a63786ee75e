import io
import json

import numpy as np
import pytest
from rich.console import Console

from support.report.made_run import PARAMETERS, make, record_of
from unisono.recipe import Recipe
from unisono.report.live.follower import current
from unisono.report.terminal.dashboard import bar_of, dashboard, spark
from unisono.storage.rundir import RunDirectory


def shown(run, age_s=None) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(dashboard(current(run), age_s))
    return console.file.getvalue()


def test_a_finished_run(tmp_path):
    text = shown(make(tmp_path / "run", epochs=12), 500.0)
    assert "run: mlp:64 on digits, 4 ranks; finished" in text
    assert "last written" not in text
    assert "epoch 12/12" in text
    assert "test accuracy 97.21 %" in text
    assert text.count("rank 3  node0") == 1
    assert "Limited by" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_run_that_goes_on_and_one_without_an_epoch(tmp_path):
    with RunDirectory.make(str(tmp_path / "run"), Recipe.from_options(epochs=4, ranks=2, shards=2)) as directory:
        text = shown(directory.path, 3.2)
        assert "epoch 0/4" in text
        assert "2 ranks; going on, last written 3 s ago" in text
        directory.add(record_of(1, 4, 2), PARAMETERS)
        assert "epoch 1/4" in shown(directory.path)
        assert "train loss" in shown(directory.path)


@pytest.mark.parametrize(
    ("age_s", "told"), [(0.0, "now"), (0.4, "now"), (0.9, "1 s ago"), (75.2, "75 s ago"), (4000.0, "1:06:40 ago")]
)
def test_when_something_was_written_last(age_s, told, tmp_path):
    with RunDirectory.make(str(tmp_path / "run"), Recipe.from_options(epochs=4)) as directory:
        assert f"last written {told} epoch 0/4" in " ".join(shown(directory.path, age_s).split())


def test_after_a_resume_on_fewer_ranks_the_last_epoch_is_theirs(tmp_path):
    with RunDirectory.make(str(tmp_path / "run"), Recipe.from_options(epochs=4, ranks=2, shards=2)) as directory:
        directory.add(record_of(1, 4, 20), PARAMETERS)
        assert "and 4 more ranks" in shown(directory.path)
        directory.add(record_of(2, 4, 2), PARAMETERS)
        text = shown(directory.path)
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("rank ")] == ["rank 0", "rank 1"]
    assert "more ranks" not in text


def test_hostile_texts_do_not_write_to_the_terminal(tmp_path):
    evil = "\x1b[2J\x1b]0;evil\x07[bold]"
    run = make(tmp_path / "run", model=evil, status=evil)
    (run / "ranks.csv").write_text((run / "ranks.csv").read_text().replace("node0", evil))
    (run / "events.jsonl").write_text('{"kind": "\\u001b[2J"}\n{"kind": "death"}\n[]\n')
    text = shown(run)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]" in text


def test_a_curve_in_one_line():
    assert spark(np.array([0.0, 1.0, 0.5])) == "▁█▅"
    assert spark(np.ones(3)) == "▁▁▁"
    assert len(spark(np.arange(1000.0), width=44)) <= 44


def test_a_bar_is_always_whole_and_kinds_of_time_differ_without_colours(tmp_path):
    for lengths in ([1.0, 0.0, 0.0, 0.0], [0.9, 0.03, 0.03, 0.04]):
        assert len(bar_of(lengths).plain) == 24
    assert bar_of([1.0] * 4).plain == "█" * 6 + "▓" * 6 + "▒" * 6 + "░" * 6
    assert bar_of([0.0] * 4).plain == ""
    assert "█ computing ▓ gathering data ▒ summing and updating ░ waiting" in shown(make(tmp_path / "run"))


def test_a_rank_that_was_lost_is_shown_though_snapshots_follow_and_each_line_says_when(tmp_path):
    run = make(tmp_path / "run", epochs=60)
    snapshots = [{"kind": "snapshot", "position": 61 + 2 * at, "path": "x", "s_after_start": 7.0} for at in range(9)]
    with open(run / "events.jsonl", "a") as file:
        file.writelines(f"{json.dumps(event)}\n" for event in snapshots)
    text = shown(run)
    assert "epoch 16: rank 1 was killed (SIGKILL); the other 3 took over" in text
    assert "epoch 31: rank 0 did not move" in text
    assert "after 6.5 s: a replacement of rank 0 came too late" in text


def test_of_a_failed_run_who_failed_and_why(tmp_path):
    trace = 'Traceback (most recent call last):\n  File "mine.py", line 7, in forward\n    1 / 0\n'
    failed = make(tmp_path / "run", status="failed", error=f"rank 2: {trace}ZeroDivisionError: division by zero\n")
    text = shown(failed)
    assert "\nrank 2: ZeroDivisionError: division by zero\n" in text
    assert "mine.py" not in text
    halted = make(tmp_path / "halted", status="halted", error="asked to end\nHINT: go on with --resume")
    assert "asked to end\nHINT: go on with --resume" in shown(halted)
