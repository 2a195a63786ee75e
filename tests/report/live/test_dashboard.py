import io
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))
from made_run import PARAMETERS, make, record_of

from unisono.recipe import Recipe
from unisono.report.live.dashboard import bar_of, dashboard, spark
from unisono.report.live.following import current
from unisono.train.rundir import RunDirectory


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
    with RunDirectory.make(str(tmp_path / "run"), Recipe(epochs=4, ranks=2, shards=2)) as directory:
        text = shown(directory.path, 3.2)
        assert "epoch 0/4" in text
        assert "2 ranks; going on, last written 3.0 s ago" in text
        directory.add(record_of(1, 4, 2), PARAMETERS)
        assert "epoch 1/4" in shown(directory.path)
        assert "train loss" in shown(directory.path)


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


@pytest.mark.parametrize("lengths", [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.9, 0.03, 0.03, 0.04]])
def test_a_bar_is_always_whole(lengths):
    assert len(bar_of(lengths).plain) == 24


def test_a_bar_of_nothing():
    assert bar_of([0.0, 0.0, 0.0, 0.0]).plain == ""
