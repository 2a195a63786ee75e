"""Recordings: what a file of pushes may say, and which runs it repeats."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.asynchronous.recorded_order import FIELDS, OWN, mark_of, read
from unisono.strategies.asynchronous.sequencer import DROP, FLUSH, HELLO, PUSH, Entry
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.strategies.asynchronous.staleness_stats import staleness_stats
from unisono.training.job import prepare

RECIPE = Recipe.from_options(
    strategy="async", ranks=3, masters=1, model="mlp:4", batch_size=10, epochs=2, optimizer="sgd",
    data="synthetic:classes=2,rows=30,features=3,test_rows=0",
)  # fmt: skip
PUSHES = 3
OF_ONE = [(1, 0, 0, 1, 0), (2, 1, 1, 1, 0), (2, 2, 0, 1, 0)]
"""An epoch: rank, batch, staleness, applied, greeted."""


def record(run: Path, *epochs: Sequence[tuple[int, ...]], recipe: Recipe = RECIPE, marks: Sequence[str] = ()) -> str:
    """A run directory, as far as an order needs it; the path of its pushes."""
    run.mkdir(exist_ok=True)
    made = prepare(recipe).recipe
    (run / "recipe.toml").write_text(made.toml())
    lines = [",".join(FIELDS)]
    for number, rows in enumerate(epochs, 1):
        mark = marks[number - 1] if marks else mark_of(made)
        lines += [",".join(map(str, (number, *row, mark))) for row in rows]
    (run / "pushes.csv").write_text("\n".join(lines) + "\n")
    return str(run / "pushes.csv")


def refused(order: str, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        prepare(RECIPE.with_options(order=order, **changes))
    return str(caught.value)


def planned(recipe: Recipe) -> Any:
    job = prepare(recipe)
    return async_options_of(job, job.model()).planned


def test_a_recording_is_read(tmp_path):
    order = record(tmp_path / "run", OF_ONE, OF_ONE)
    expected = [(1, 0), (2, 1), (2, 2)]
    assert planned(RECIPE.with_options(order=order)) == {1: expected, 2: expected}
    assert planned(RECIPE.with_options(order=order, epochs=1)) == {1: expected}  # the learning rate is constant


def test_a_recording_of_the_same_recipe_may_lie_elsewhere(tmp_path):
    shutil.copy(record(tmp_path / "run", OF_ONE, OF_ONE), tmp_path / "copy.csv")
    assert planned(RECIPE.with_options(order=str(tmp_path / "copy.csv"), deal="dynamic", slow="2:3", keep=3))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lr": 0.5}, "--lr: 0.01 then, 0.5 now"),
        ({"seed": 3}, "--seed: 0 then, 3 now"),
        ({"batch_size": 15}, "--batch-size: 10 then, 15 now"),
        ({"ranks": 4, "batch_size": 5}, "--ranks: 3 then, 4 now"),
        ({"data": "synthetic:classes=2,rows=30,features=4"}, "--data: 'synthetic:classes=2,rows=30,features=3"),
        ({"staleness_rule": "plain"}, "--staleness-rule: 'safe' then, 'plain' now"),
        ({"model": "mlp:5"}, "--model: 'mlp:4' then, 'mlp:5' now"),
        ({"schedule": "cosine"}, "--schedule: 'constant' then, 'cosine' now"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_another_recipe_is_refused_with_the_difference(tmp_path, changes, told):
    text = refused(record(tmp_path / "run", OF_ONE, OF_ONE), **changes)
    assert "recorded with another recipe" in text
    assert told in text
    assert len([line for line in text.splitlines() if " then, " in line]) == len(changes)


def test_another_recipe_is_refused_where_nobody_knows_the_difference(tmp_path):
    shutil.copy(record(tmp_path / "run", OF_ONE, OF_ONE), tmp_path / "copy.csv")
    assert "is not its recipe" in refused(str(tmp_path / "copy.csv"), lr=0.5)


def test_a_run_that_went_on_with_other_options_is_refused(tmp_path):
    order = record(tmp_path / "run", OF_ONE, OF_ONE, marks=["00000000", mark_of(prepare(RECIPE).recipe)])
    assert "line 2" in (text := refused(order))
    assert "epoch 1 is of before the run was resumed with --allow-change" in text


@pytest.mark.parametrize(
    ("second", "epochs", "told", "hint"),
    [
        (
            [(1, 0, 0, 1, 0), (2, 1, 1, 1, 0), (2, 2, 0, 1, 2)],  # replaced after its push, at the same staleness
            2, "line 7: rank 2 had got its parameters in the middle of epoch 2, after 2 pushes", "give --epochs 1",
        ),
        (
            OF_ONE[1:],
            2, "2 pushes in epoch 2, but an epoch is 3 batches, once each: the run was halted in it and", "--epochs 1",
        ),
        (OF_ONE, 5, "ends with epoch 2, and 5 are asked for", "HINT: give --epochs 2"),
    ],
    ids=["pulled again", "halted", "ended early"],
)  # fmt: skip
def test_epochs_that_cannot_be_repeated_are_refused_and_those_before_are_taken(tmp_path, second, epochs, told, hint):
    order = record(tmp_path / "run", OF_ONE, second)
    text = refused(order, epochs=epochs)
    assert told in text
    assert hint in text
    assert planned(RECIPE.with_options(order=order, epochs=1))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: nothing is there"),
        ("epoch,rank\n1,1\n", "line 1: no column batch"),
        ("epoch,rank,batch,staleness,applied\n1,1,0,0,1\n", "line 1: a recording without the column greeted, recipe"),
        ("epoch,rank,batch\n1,1,0\n1,one,1\n", "line 3: rank is 'one', not a whole number"),
        ("epoch,rank,batch\n1,1,0\n1,1\n", "line 3: 2 fields, but line 1 names 3"),
        ("epoch,rank,batch\n1,1,0\n0,1,1\n", "line 3: batch 1 of epoch 0"),
        ("epoch,rank,batch\n1,1,0\n1,1,3\n", "line 3: batch 3 of epoch 1, but an epoch is 3 batches"),
        ("epoch,rank,batch\n1,1,0\n1,7,2\n", "line 3: a push of rank 7, but workers are ranks 1 to 2"),
        ("epoch,rank,batch\n1,1,0\n1,2,2\n1,1,0\n", "line 4: batch 0 of epoch 1 is there already, in line 2"),
        ("epoch,rank,batch\n1,1,0\n1,1,1\n1,2,2\n", "0 pushes in epoch 2, but an epoch is 3 batches"),
        ('epoch,rank,batch\n1,1,"' + "9" * 200_000 + '"\n', "line 2: field larger than field limit"),
        ("epoch,rank,batch\n1,1,\x000\n", "line 2: "),
    ],
)
def test_what_is_damaged_is_said_with_its_line(tmp_path, text, told):
    (tmp_path / "order.csv").write_text(text)
    assert f"--order {tmp_path / 'order.csv'}" in (said := refused(str(tmp_path / "order.csv")))
    assert told in said
    assert "HINT: " in said


def test_a_line_that_was_cut_or_changed(tmp_path):
    path = Path(record(tmp_path / "run", OF_ONE, OF_ONE))
    whole = path.read_text()
    path.write_text(whole[:-12])
    assert "line 7: 5 fields, but line 1 names 7" in refused(str(path))
    path.write_text(whole.replace("2,2,1,1,1,0", "2,2,1,0,1,0"))
    assert "line 6: staleness 0, applied 1, but in this order it is 1, 1: lines were changed" in refused(str(path))


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    assert "No such file" in (text := refused(str(tmp_path / "none")))
    assert "round-robin" in text
    (tmp_path / "bytes").write_bytes(b"epoch,rank,batch\n\xff\xfe")
    assert "not a text file" in refused(str(tmp_path / "bytes"))


def test_an_order_of_ones_own_is_not_compared_with_anything(tmp_path):
    (tmp_path / "recipe.toml").write_text(RECIPE.with_options(lr=3.0).toml())
    rows = [f"{epoch},{rank},{batch}" for epoch in (1, 2) for rank, batch, *_ in OF_ONE]
    (tmp_path / "mine.csv").write_text("\n".join([",".join(OWN), *rows]))
    assert planned(RECIPE.with_options(order=str(tmp_path / "mine.csv"))) == {
        epoch: [(1, 0), (2, 1), (2, 2)] for epoch in (1, 2)
    }


def test_dropped_pushes_are_compared_too(tmp_path):
    drops = RECIPE.with_options(max_staleness="0:drop", epochs=1)
    order = record(tmp_path / "run", [(1, 0, 0, 1, 0), (2, 1, 1, 0, 0), (2, 2, 0, 1, 0)], recipe=drops)
    assert planned(drops.with_options(order=order))


def test_greetings_are_read_off_the_log():
    log = [
        Entry(HELLO, 1, -1, 0, 1, 0, 0, 0), Entry(HELLO, 2, -1, 0, 1, 0, 0, 0), Entry(PUSH, 1, 0, 0, 2, 0, 1, 8),
        Entry(HELLO, 2, -1, 0, 1, 1, 0, 0), Entry(DROP, 2, 1, 0, 2, 1, 0, 8), Entry(PUSH, 1, 2, 0, 3, 2, 1, 8),
        Entry(FLUSH, -1, -1, 0, 0, 3, 1, 0),
    ]  # fmt: skip
    rows = staleness_stats(np.array(log, np.int64), size=3).record.pushes
    assert rows == [[1, 0, 0, 1, 0], [2, 1, 0, 0, 1], [1, 2, 0, 1, 0]]


def test_the_rules_of_an_epoch_are_asked_for(tmp_path):
    order, asked = record(tmp_path / "run", OF_ONE, OF_ONE), []
    job = prepare(RECIPE)
    terms = async_options_of(job, job.model())
    read(Path(order), job.recipe, PUSHES, lambda epoch: asked.append(epoch) or terms.rules(epoch))
    assert asked == [1, 2]


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_only_regular_files_are_read(tmp_path, kind):
    path = tmp_path / "pushes.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert f"--order {path}: {'is a directory' if kind == 'directory' else 'is not a regular file'}" in refused(
        str(path)
    )


@pytest.mark.parametrize("word", ["9" * 5000, "9" * 100_000, "\x1b[2J", "1" + "0" * 30])
def test_numbers_that_are_none_are_told_in_short(tmp_path, word):
    path = tmp_path / "mine.csv"
    path.write_text(f"epoch,rank,batch\n1,1,{word}\n")
    told = refused(str(path))
    assert "line 2: batch is " in told
    assert len(told) < 500
    assert "\x1b" not in told


def test_more_epochs_than_there_are_lines_take_no_memory(tmp_path):
    order, job = record(tmp_path / "run", OF_ONE, OF_ONE), prepare(RECIPE)
    with pytest.raises(UserError, match="ends with epoch 2, and 1000000000000 are asked for"):
        read(Path(order), job.recipe.with_options(epochs=10**12), PUSHES, async_options_of(job, job.model()).rules)
