"""Records and their order, with runs that are made up."""

import json
import os
from pathlib import Path

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.study.cells import Cell, cells_of, over
from unisono.study.study import RunOptions, Trial, Turn, carry_out, counted, estimate_s, failure, run_order
from unisono.study.study_directory import Records, default_path

CELLS = cells_of(Recipe(), [over("ranks=1,2")])
ONE, TWO = CELLS
STUDIED = {"cells": [cell.name for cell in CELLS]}


@pytest.fixture
def runs(monkeypatch) -> list[str]:
    """The cells that were run, in order; nothing is trained."""
    done: list[str] = []
    monkeypatch.setattr("unisono.study.study.run_cell", lambda *given: run(done, *given))
    return done


def run(done, cell, recipe, path, timeout_s, on_line):
    done.append(cell.name)
    path.mkdir(parents=True)
    (path / "left").touch()
    if cell.recipe.model.precision == "fp8":
        return {"status": "failed", "reason": "no fp8", "error": "no fp8", "exit_code": 2, "elapsed_s": 0.1} | NOTHING
    if cell.recipe.learning.seed == 9:
        return {"status": "failed", "reason": "killed", "error": "", "exit_code": -9, "elapsed_s": 0.1} | NOTHING
    return {"status": "finished", "reason": "", "error": "", "exit_code": 0, "elapsed_s": 2.0, "summary": SUMMARY}


NOTHING: dict = {"summary": {}}
SUMMARY = {"train_s": 1.5, "wall_s": 1.75, "samples_per_s": 13.0, "weights_sha256": "7"}


def conduct(path, cells, repeat: int, **terms) -> list[dict]:
    with Records.open(path, "scale", STUDIED) as records:
        return list(carry_out(records, run_order(cells, repeat), RunOptions(**terms)))


def test_runs_are_interleaved_and_kept(tmp_path, runs):
    records = conduct(tmp_path / "s", CELLS, 2)
    assert runs == ["ranks=1", "ranks=2", "ranks=2", "ranks=1"]
    lines = (tmp_path / "s/cells.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records
    assert sorted(counted(records, ONE)) == [0, 1]


def test_the_same_study_goes_on_where_it_was_interrupted(tmp_path, runs):
    plan = run_order(CELLS, 2)
    with Records.open(tmp_path, "scale", STUDIED) as records:
        pending = carry_out(records, plan, RunOptions())
        next(pending)
        next(pending)
        pending.close()
    assert len(conduct(tmp_path, CELLS, 2)) == 4
    assert len(runs) == 4
    assert len(conduct(tmp_path, CELLS, 3)) == 6  # more repeats: only those
    assert len(runs) == 6


def test_half_a_line_and_half_a_run_are_done_again(tmp_path, runs):
    conduct(tmp_path, CELLS, 1)
    lines = (tmp_path / "cells.jsonl").read_text()
    (tmp_path / "cells.jsonl").write_text(lines[: len(lines) - 5])
    assert [record["cell"] for record in conduct(tmp_path, CELLS, 1)] == ["ranks=1", "ranks=2"]
    assert runs == ["ranks=1", "ranks=2", "ranks=2"]
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 2


def test_a_recipe_that_cannot_be_is_run_once_and_does_not_end_the_study(tmp_path, runs):
    bad = Cell({"precision": "fp8"}, Recipe().with_options(precision="fp8"))
    records = conduct(tmp_path, [bad, ONE], 2)
    assert runs == ["precision=fp8", "ranks=1", "ranks=1"]
    assert failure(records, bad) == "no fp8"
    assert failure(records, ONE) == ""
    conduct(tmp_path, [bad, ONE], 2, retry=True)
    assert runs[3:] == ["precision=fp8"]


def test_what_died_is_tried_again_in_the_next_round_or_when_asked(tmp_path, runs):
    unlucky = Cell({"seed": "9"}, Recipe().with_options(seed=9))
    conduct(tmp_path, [unlucky], 2)
    assert len(runs) == 2
    conduct(tmp_path, [unlucky], 2)
    assert len(runs) == 2
    records = conduct(tmp_path, [unlucky], 2, retry=True)
    assert len(runs) == 4
    assert not counted(records, unlucky)


def test_warm_ups_do_not_count(tmp_path, runs):
    with Records.open(tmp_path, "scale", STUDIED) as records:
        list(carry_out(records, run_order([ONE], 1, warmup=1), RunOptions()))
        assert sorted(counted(records.all, ONE)) == [0]
    assert len(runs) == 2


def test_another_study_is_refused(tmp_path, runs):
    conduct(tmp_path, CELLS, 1)
    with pytest.raises(UserError, match=r"holds another study: kind is scale there, compare here"):
        Records.open(tmp_path, "compare", STUDIED)
    with pytest.raises(UserError, match=r"holds another study: studied is cells .*ranks=1.* there, cells \[\] here"):
        Records.open(tmp_path, "scale", {"cells": []})


@pytest.mark.parametrize("left", ['{"kind": "sca', "", "[]"])
def test_runs_of_nobody_knows_what_are_not_taken_over(tmp_path, runs, left):
    conduct(tmp_path, CELLS, 1)
    (tmp_path / "study.json").write_text(left)
    with pytest.raises(UserError, match=r"study.json is damaged, and there are runs"):
        Records.open(tmp_path, "compare", STUDIED)
    assert (tmp_path / "study.json").read_text() == left
    (tmp_path / "cells.jsonl").unlink()  # a kill before the first run
    Records.open(tmp_path, "compare", STUDIED).close()


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds something that is no study"):
        Records.open(tmp_path, "scale", STUDIED)
    with pytest.raises(UserError, match=r"--out /proc/nothing: .*\nHINT: give a directory that you may write to"):
        Records.open(Path("/proc/nothing"), "scale", STUDIED)


def test_a_study_without_a_place_gets_one_that_is_its_own():
    same = [default_path("scale", Recipe.from_options(seed=seed), {"grid": "1x1"}) for seed in (0, 0)]
    assert same[0] == same[1] != default_path("scale", Recipe(), {"grid": "1x2"})
    assert same[0].parent == Path("studies")
    assert same[0].name.startswith("scale-mlp-digits-")


def test_two_at_once_are_refused(tmp_path):
    with Records.open(tmp_path, "scale", STUDIED), pytest.raises(UserError, match="is in use by another study"):
        Records.open(tmp_path, "scale", STUDIED)
    Records.open(tmp_path, "scale", STUDIED).close()


def test_a_time_limit_is_a_number_above_0():
    with pytest.raises(UserError, match="--timeout-s is 0"):
        RunOptions(timeout_s=0)


def test_an_estimate_counts_what_is_left():
    trial = Trial(ranks=1, start_s=1.0, epoch_s=2.0)
    cells = [Cell(cell.labels, cell.recipe.with_options(epochs=10)) for cell in CELLS]
    assert estimate_s(run_order(cells, 1), [], trial, cores=2) == (1 + 20) + (1 + 10)
    assert estimate_s(run_order(cells, 1), [], trial, cores=1) == (1 + 20) + (1 + 20)
    known = [{"digest": cells[0].digest, "repeat": 0, "elapsed_s": 5.0}]
    assert estimate_s([Turn(cells[0], 0), Turn(cells[0], 1)], known, trial, cores=2) == 5.0


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["study.json", "cells.jsonl", "scale.csv", "about.json", "runs", "cells", ".lock"])
def test_what_is_in_the_place_of_a_file_of_a_study_is_refused_at_its_start(tmp_path, name):
    study, outside = tmp_path / "study", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("not yours")
    Records.open(study, "scale", STUDIED).close()
    for kind in ("link", "dangling link", "link to a directory", "pipe", "another kind"):
        (study / name).unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(study / name)
        elif kind == "another kind":
            (study / name).touch() if name in ("runs", "cells") else (study / name).mkdir()
        else:
            (study / name).symlink_to(outside / {"link": "file", "dangling link": "new"}.get(kind, ""))
        with pytest.raises(UserError, match=rf"{name}: is .*\nHINT: remove it"):
            Records.open(study, "scale", STUDIED)
        assert [path.read_text() for path in outside.iterdir()] == ["not yours"]


def test_a_folder_that_is_made_a_link_meanwhile_is_not_cleared(tmp_path):
    (tmp_path / "outside" / "a-0").mkdir(parents=True)
    with Records.open(tmp_path / "study", "scale", STUDIED) as records:
        (tmp_path / "study" / "runs").symlink_to(tmp_path / "outside")
        with pytest.raises(UserError, match="is a link"):
            records.clear("runs/a-0")
    assert (tmp_path / "outside" / "a-0").exists()


def test_a_study_that_was_killed_before_it_was_named_is_begun_again(tmp_path):
    (tmp_path / ".study.json.0123456789abcdef.part").touch()
    Records.open(tmp_path, "scale", STUDIED).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "study.json"]


@pytest.mark.parametrize(
    "text", ["[1]", "7", "{", '{"run": "/etc"}', '{"run": "../x"}', '{"a":' * 1000, "9" * 5000, "\xff"]
)
def test_lines_that_are_no_records_are_refused(text, tmp_path, runs):
    conduct(tmp_path / "s", CELLS, 1)
    (tmp_path / "s" / "cells.jsonl").write_bytes(f"{text}\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"cells.jsonl, line 1 is damaged: it is no record\nHINT: remove that line"):
        conduct(tmp_path / "s", CELLS, 1)


@pytest.mark.parametrize("name", ["digest", "repeat", "status", "elapsed_s", "summary"])
def test_a_record_that_lacks_something_is_named_by_its_line(name, tmp_path, runs):
    conduct(tmp_path / "s", CELLS, 1)
    file = tmp_path / "s" / "cells.jsonl"
    first, second = map(json.loads, file.read_text().splitlines())
    del second[name]
    file.write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    with pytest.raises(UserError, match=f"cells.jsonl, line 2 is damaged: a record without {name}\nHINT: remove that"):
        conduct(tmp_path / "s", CELLS, 1)


def test_records_are_not_read_from_a_pipe_or_through_a_link(tmp_path, runs):
    conduct(tmp_path / "s", CELLS, 1)
    cells = tmp_path / "s" / "cells.jsonl"
    cells.rename(tmp_path / "mine")
    with open(tmp_path / "mine", "a") as file:
        file.write("not a whole line")
    before = (tmp_path / "mine").read_bytes()
    cells.symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="is a link, which is not followed"):
        conduct(tmp_path / "s", CELLS, 1)
    assert (tmp_path / "mine").read_bytes() == before
    cells.unlink()
    os.mkfifo(cells)
    with pytest.raises(UserError, match="is not a regular file"):
        conduct(tmp_path / "s", CELLS, 1)


def test_rounds_go_there_and_back():
    assert [(turn.cell, turn.repeat) for turn in run_order("abc", repeat=2)] == [
        ("a", 0), ("b", 0), ("c", 0), ("c", 1), ("b", 1), ("a", 1),
    ]  # fmt: skip


def test_warm_ups_come_first_and_are_numbered_below_0():
    assert [turn.repeat for turn in run_order("a", repeat=2, warmup=2)] == [-2, -1, 0, 1]


def test_every_cell_is_as_often_early_as_late():
    order = [turn.cell for turn in run_order("ab", repeat=4)]
    places = {cell: sum(at for at, found in enumerate(order) if found == cell) for cell in "ab"}
    assert places["a"] == places["b"]
