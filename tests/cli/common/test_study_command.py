"""What commands that are studies show: names of the user's as they are; what there is when they are interrupted."""

import pytest

from support.report.study_records import record_of
from unisono.cli.common import study_command
from unisono.cli.common.study_command import StudyPlan, run_study
from unisono.cli.compare import show
from unisono.errors import RESUME_ME, Interrupted
from unisono.measure.options import StudyOptions
from unisono.recipe import Recipe
from unisono.study.cells import cells_of, over
from unisono.study.study import RunOptions
from unisono.study.study_directory import Records


@pytest.mark.parametrize("name", ["runs/[old]/a", "runs/[/old]/a"])
def test_names_in_brackets_are_shown_as_they_are(name, tmp_path, capsys):
    cells = cells_of(Recipe(), [over(f"data={name},digits")])
    show(cells, ["data"], [record_of(cell, 0, 100.0) for cell in cells], tmp_path)
    table, _, _ = capsys.readouterr().out.partition("Fastest")
    assert name in table


@pytest.mark.parametrize(("status", "rows"), [("", []), ("failed", []), ("finished", [1])])
def test_an_interrupted_study_has_a_table_once_a_run_has_ended(status, rows, tmp_path, monkeypatch):
    def interrupted(plan: StudyPlan, records: Records, terms: RunOptions) -> None:
        if status:
            record = record_of(cells[0], 0, 100.0)
            records.add(record if rows else record | {"status": status, "reason": "it was cold", "summary": {}})
        raise KeyboardInterrupt

    monkeypatch.setattr(study_command, "_carry_out", interrupted)
    cells, path = cells_of(Recipe(), [over("ranks=1,2")]), tmp_path / "o"
    plan, shown = StudyPlan("compare", cells, StudyOptions(out=str(path))), []
    with pytest.raises(Interrupted) as caught:
        run_study(plan, lambda records, path: shown.append(len(records)))
    nothing = f"interrupted before anything was measured; the study is in {path}\nHINT: the same command goes on"
    assert str(caught.value) == nothing if not rows else "what was finished is kept in" in str(caught.value)
    assert (shown, caught.value.exit_code) == (rows, RESUME_ME)
