"""Sections of studies, from records as their commands write them, and from damaged ones."""

import json
from pathlib import Path

import pytest

import unisono
from support.report.made_run import make
from support.report.made_studies import ROWS, compare_rows, points, predict_rows, profile_records, scale_rows, tune_rows
from support.report.pages import ABOUT, titles_of
from support.report.study_records import failed, record_of
from unisono.recipe import Recipe
from unisono.report.html.blocks import Lines, Rows, Text
from unisono.report.html.document import document, sections_of
from unisono.report.html.flame import Flame
from unisono.report.html.study_table import split_reasons, table_of
from unisono.report.studies import compare
from unisono.report.studies.predict import words_of
from unisono.study.cells import cells_of, over


def page_of(folder: Path, name: str, rows: list) -> str:
    (folder / f"{name}.json").write_text(json.dumps(rows))
    return document([unisono.load(folder)])


def test_scaling_is_charts_a_table_and_words(tmp_path):
    rows = scale_rows()
    page = page_of(tmp_path, "scale", rows)
    (section,) = sections_of([unisono.load(tmp_path)])
    assert section.title == "Scaling"
    (chart,) = [block for block in section.blocks if isinstance(block, Lines) and block.title == "Accuracy"]
    assert (chart.y.unit, chart.series[0].y[0]) == ("%", pytest.approx(100 * rows[0]["train_accuracy"]))
    for text in ("Speed-up", "Training time", "Accuracy", "Amdahl: a serial share of", "Knee: ", "Bits: one weights_"):
        assert text in page, text
    assert unisono.load(tmp_path / "scale.json").studies["scale"][0]["grid"] == "1x1"


@pytest.mark.parametrize("name", ["scale", "compare", "tune", "profile"])
def test_other_programs_that_were_met_are_on_the_page(name, tmp_path):
    quiet = page_of(tmp_path, name, ROWS[name]())
    assert "others&#x27; cores" not in quiet
    busy = page_of(tmp_path, name, [row | {"others_cores": 0.3, "others_cores_high": 0.4} for row in ROWS[name]()])
    assert "others&#x27; cores" in busy
    assert f"Other programs used up to 0.{3 if name == 'profile' else 4} cores" in busy


def test_a_comparison_has_a_bar_and_a_curve_for_each_combination_and_no_markup_of_a_stranger(tmp_path):
    page = page_of(tmp_path, "compare", compare_rows())
    assert "&lt;img src=x" in page
    assert "<img" not in page
    (section,) = sections_of([unisono.load(tmp_path)])
    bars, curves = (block for block in section.blocks if isinstance(block, Rows | Lines))
    assert bars.spec()["cells"][0][0] == pytest.approx([0, 7, 0.5, 1.5, 1, 0])  # nothing of 10 s is left
    assert curves.spec()["series"][0]["y"] == [50, 75, 80]


@pytest.mark.parametrize("name", ["forward_s", "modules_forward_s"])
def test_a_profile_of_so_few_batches_that_a_part_comes_out_as_nothing_is_shown(tmp_path, name):
    (tmp_path / "profile.json").write_text(json.dumps([record | {name: 0.0} for record in profile_records()]))
    (section,) = sections_of([unisono.load(tmp_path)])
    assert section.title == "Profile"


def test_a_profile_is_a_flame_graph_bars_and_tables(tmp_path):
    (tmp_path / "profile.json").write_text(json.dumps(profile_records()))
    (section,) = sections_of([unisono.load(tmp_path)])
    assert section.title == "Profile"
    activations, flame, phases = (block for block in section.blocks if isinstance(block, Rows | Flame))
    assert activations.spec()["rows"] == ["relu", "gelu"]
    assert flame.spec()["frames"][0]["name"] == "step"
    assert phases.spec()["cells"][0][0] == [0, 0.1, 0.2, 0.3, 0.2, 0.1, 0.1, 0]
    page = document([unisono.load(tmp_path)])
    assert "Kinds of modules, rank 0" in page
    assert "&lt;img src=x" in page
    assert "<img" not in page


def test_a_prediction_is_charts_by_network_and_how_good_it_is(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps(points()))
    page = page_of(tmp_path, "predict", predict_rows())
    (section,) = sections_of([unisono.load(tmp_path)])
    charts = {block.title: block.spec() for block in section.blocks if isinstance(block, Lines)}
    assert list(charts) == [
        "Efficiency of sync",
        "Throughput, 10gbit,50us", "A step of sync by all-reduce, 10gbit,50us",
        "Throughput, 100gbit,5us", "A step of sync by all-reduce, 100gbit,5us",
    ]  # fmt: skip
    ideal = charts["Throughput, 10gbit,50us"]["series"][0]
    assert ideal["y"][2] == pytest.approx(8 * ideal["y"][0], rel=1e-4)
    assert "On 1 held-out points here" in page
    assert "512 nodes: a batch of 512 has no work for 2048 ranks." in page
    assert "<img" not in page


def test_a_prediction_without_work_for_its_ranks_says_so(tmp_path):
    rows = [row for row in predict_rows() if row.get("reason")]
    assert "no number of nodes" in words_of(rows, [])[0]
    page_of(tmp_path, "predict", rows)
    assert sections_of([unisono.load(tmp_path)]) == []


def test_a_tuning_is_bars_the_fastest_first_and_a_table(tmp_path):
    page = page_of(tmp_path, "tune", tune_rows())
    (section,) = sections_of([unisono.load(tmp_path)])
    (bars,) = (block.spec() for block in section.blocks if isinstance(block, Rows))
    assert [cells[0][1] for cells in bars["cells"]] == [200, 100]
    assert bars["rows"][0] == "2 x 1, 8 sh., batch 64"
    assert "the best for throughput" in page
    assert "&lt;img src=x" in page


DAMAGE = [
    {"world": 0}, {"world": "two"}, {"rates": [1]}, {"rates": {"0": -1}}, {"train_s": "x"}, {"train_s": None},
    {"labels": "x"}, {"labels": {"strategy": 3}}, {"weights_sha256": 5}, {"ratio": "x"}, {"speed_up": "x"},
    {"grid": 3}, {"cell": 3}, {"weak": "no"}, {"reason": 3}, {"repeats": None},
    {"accuracies": "x"}, {"accuracies": [0.5, None]}, {"utilisation": "x"}, {"epochs": "x"}, {"train_s": 0.0},
    {"phases": [{}]}, {"phases": []}, {"modules": [{}]}, {"operators": 3}, {"engine": 3}, {"overhead": {"x": "y"}},
    {"batches": 0}, {"step_s": 0}, {"activation": None}, {"network": 3}, {"nodes": "x"}, {"efficiency": None},
    {"ring_step_s": "x"}, {"async_samples_per_s": "x"}, {"best": 3}, {"digest": 3}, {"objective": None},
    {"complete": 1}, {"ranks": None}, {"ranks": []}, {"samples_per_s": "x"}, {"memory_bytes": -1}, {"trials": "x"},
    {"test_accuracy": "x"}, {"energy_j": [1]}, {"wall_s": "x"}, {"speed_up_low": "x"}, {"sync_share": {}},
    {"others_cores": "x", "others_cores_high": 1.0}, {"others_cores": 1.0, "others_cores_high": None, "machine": 3},
]  # fmt: skip


@pytest.mark.parametrize("name", list(ROWS))
def test_rows_that_are_damaged_are_left_out(name, tmp_path):
    rows = ROWS[name]()
    for damage in DAMAGE:
        page = page_of(tmp_path, name, [rows[0] | damage, *rows[1:], {}, {"reason": "x"}])
        assert "could not be made" not in page, damage
        assert f"records are not such as unisono {name} writes, and left out" in page, damage


STORY = {
    "command": "unisono scale --grid 1x1,1x2 --data '<b>mine</b>'", "version": "0.1.0", "varied": ["ranks", "shards"],
    "recipe": {"epochs": 3, "lr": 0.01, "data": "<b>mine</b>"}, "machine": {"host": "here", "memory_bytes": 1 << 34},
}  # fmt: skip


def test_how_a_study_came_about_is_told_as_it_is_of_a_run(tmp_path):
    (tmp_path / "about.json").write_text(json.dumps(STORY))
    page = page_of(tmp_path, "scale", scale_rows())
    assert titles_of(tmp_path) == ["Scaling", *ABOUT]
    assert "unisono scale --grid 1x1,1x2 --data" in page
    assert "with this one what is missing." in page
    assert "They differ in --ranks, --shards." in page
    assert "16 GiB" in page
    assert "<b>mine" not in page


def test_a_recipe_of_defaults_is_said_to_be_one(tmp_path):
    (tmp_path / "about.json").write_text(json.dumps(STORY | {"recipe": {"epochs": Recipe().learning.epochs}}))
    assert "All options have their defaults." in page_of(tmp_path, "scale", scale_rows())


@pytest.mark.parametrize(
    "about",
    [[], {}, {"command": 3, "recipe": "x", "varied": "ranks", "machine": []}, {"varied": [1], "recipe": [2]}, "cut {"],
)
def test_a_study_of_which_that_is_not_known_is_shown_without(about, tmp_path):
    (tmp_path / "about.json").write_text(about if isinstance(about, str) else json.dumps(about))
    page = page_of(tmp_path, "scale", scale_rows())
    assert "could not be made" not in page
    assert [title for title in titles_of(tmp_path) if title != "What could not be read"] == ["Scaling"]


def test_of_a_study_and_a_run_each_has_its_command(tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "about.json").write_text(json.dumps(STORY))
    (tmp_path / "study" / "scale.json").write_text(json.dumps(scale_rows()))
    page = document([unisono.load(tmp_path / "study"), unisono.load(make(tmp_path / "run"))])
    assert "unisono scale --grid" in page
    assert "unisono train --" in page


WHY = "--strategy ddp needs torch, which is not installed"


def found() -> list[dict]:
    cells = cells_of(Recipe(), [over("strategy=sync,ddp,local")])
    return compare.rows_of(cells, [record_of(cells[0], 0, 100.0), failed(cells[1], WHY)])


def test_reasons_are_sentences_of_their_own():
    rows = found()
    above, below = split_reasons(compare.words_of(rows), rows)
    assert below == [Text(f"strategy=ddp: {WHY}", "warning"), Text("strategy=local: not run yet", "note")]
    assert above == [Text(line) for line in compare.words_of(rows)[: len(above)]]
    assert len(above) + len(below) == len(compare.words_of(rows))


def test_rows_without_numbers_are_marked_beside_their_names():
    rows = found()
    made = table_of(compare.table(rows, ["strategy"]), rows)
    assert "why not" not in made.head
    assert [row[0] for row in made.rows] == ["sync", "ddp (failed)", "local (not run yet)"]
    assert {len(row) for row in made.rows} == {len(made.head)}


def test_where_all_went_well_nothing_is_below():
    rows = found()[:1]
    assert split_reasons(compare.words_of(rows), rows) == ([Text(line) for line in compare.words_of(rows)], [])
