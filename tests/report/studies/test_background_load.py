"""Other programs that were met: in rows, in a column, in a sentence; on tables of every study."""

import pytest

from support.report.profile_records import record as profiled
from support.report.study_records import record_of
from unisono.measure.scale_grid import cells_of_grid
from unisono.recipe import Recipe
from unisono.report.studies import compare, predict, profile, scale, scaling_limits, tune
from unisono.report.studies.background_load import background_load_of, load_columns, load_line
from unisono.study.cells import cells_of, over

TITLE = "others' cores"
MACHINE = {"machine": {"cores": 2}}


def met(*cores: float | None) -> list[dict]:
    return [{"others_cores": found, "summary": MACHINE} for found in cores]


def rows(*cells: list[dict]) -> list[dict]:
    return [{"name": f"cell {at}"} | background_load_of(runs) for at, runs in enumerate(cells)]


def told(*cells: list[dict]) -> str:
    return load_line(rows(*cells), lambda row: row["name"])


def test_a_row_has_the_median_and_the_most_of_its_runs():
    assert background_load_of(met(0.5, 0.0, 1.5)) == {"others_cores": 0.5, "others_cores_high": 1.5, "machine_cores": 2}
    unknown = {"others_cores": None, "others_cores_high": None, "machine_cores": None}
    assert background_load_of([{"others_cores": None, "summary": {}}]) == unknown
    assert background_load_of([{"others_cores": None}, {}]) == unknown  # of before it was kept


def test_what_is_not_felt_is_not_shown():
    quiet = rows(met(0.1, 0.02), met(None), [{}])
    assert load_columns(quiet) == []
    assert load_line(quiet, str) == ""
    (column,) = load_columns(rows(met(0.0, 0.12), met(0.1), met(None)))
    assert [column.text(row) for row in rows(met(0.0, 0.12), met(0.1), met(None))] == ["0.1", "", ""]


def test_a_sentence_names_the_row_that_met_most():
    assert told(met(0.2, 0.3), met(0.0, 0.9)) == (
        "Other programs used up to 0.9 cores meanwhile; the most during cell 1."
    )
    assert told(met(0.0, 0.0, 0.3)) == "Other programs used up to 0.3 cores meanwhile."


def test_much_of_the_machine_is_a_reason_to_repeat_it():
    assert told(met(1.6, 1.6), met(1.6)) == (
        "Other programs kept 1.6 of the 2 cores busy meanwhile, so these timings are unreliable. Repeat it when the "
        "machine is quiet."
    )
    assert "Repeat it" not in told(met(0.5), met(0.5), met(2.0))


def busy(cells: list, cores: float) -> list[dict]:
    return [record_of(cell, 0, 100.0, **MACHINE) | {"others_cores": cores} for cell in cells]


def shown(table, rows) -> tuple[str, str]:
    """As people and as programs read it."""
    return table.markdown(rows), table.csv(rows)


@pytest.mark.parametrize("cores", [0.0, 0.4])
def test_scale_and_compare_show_it(cores):
    grid = cells_of_grid(Recipe(), "1x1,1x2", weak=False)
    found = scale.rows_of(grid, busy(grid, cores), weak=False, cores=2)
    both = [(shown(scale.table(found), found), scaling_limits.words_of(found))]
    varied = cells_of(Recipe(), [over("seed=1,2")])
    found = compare.rows_of(varied, busy(varied, cores))
    both.append((shown(compare.table(found, ["seed"]), found), compare.words_of(found)))
    for (markdown, csv), words in both:
        assert (TITLE in markdown) == bool(cores)
        assert "others_cores" in csv.splitlines()[0]
        assert any("used up to 0.4 cores" in text for text in words) == bool(cores)


def test_one_size_of_a_grid_shows_it_too():
    grid = cells_of_grid(Recipe(), "1x1", weak=False)
    found = scale.rows_of(grid, busy(grid, 0.4), weak=False, cores=2)
    assert "used up to 0.4 cores" in scaling_limits.words_of(found)[-1]


def test_tune_shows_it():
    trial = {"what": "trial", "digest": "a", "labels": {"ranks": "1", "threads": "1"}}
    trial |= {"status": "failed", "reason": "x"}
    found = tune.rows_of([trial | {"others_cores": 0.4}, trial | {"others_cores": 0.3}])
    assert (found[0]["others_cores"], found[0]["others_cores_high"]) == (pytest.approx(0.35), 0.4)
    made = tune.table(found, "")
    assert TITLE in made.markdown(found)
    assert "used up to 0.4 cores" in tune.words_of(found, "", "throughput", complete=True)[0]


def test_predict_shows_it_beside_what_it_was_calibrated_by():
    point = {"name": "1 rank", "predicted_s": 1.0, "measured_s": 1.0, "error": 0.0, "held_out": True}
    points = [point | background_load_of(met(0.4)), point | background_load_of(met(0.0))]
    assert TITLE in predict.checks(points).markdown(points)
    assert any(
        "used up to 0.4 cores meanwhile; the most during 1 rank." in text for text in predict.words_of([], points)
    )
    assert TITLE not in predict.checks([point]).markdown([point])


def test_a_profile_shows_it():
    quiet, other = (profiled(others_cores=cores, **MACHINE) for cores in (0.0, 0.4))
    assert "used up to 0.4 cores" in profile.sentences(other)[-1]
    assert not any("Other programs" in text for text in profile.sentences(quiet))
    head, cells = profile.activation_cells([quiet, other | {"activation": "relu"}], profile.Shown())
    assert head[-1] == TITLE
    assert sorted(line[-1] for line in cells) == ["", "0.4"]
