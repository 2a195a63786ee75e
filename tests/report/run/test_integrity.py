"""Damage to files of a run that a page does not show: it is named all the same, and a whole run has none."""

import json
from pathlib import Path

import pytest

import unisono
from support.report.made_run import make

HEADER = "s_after_start,what,utilisation,memory_bytes,power_w,temperature_c\n"


@pytest.fixture
def run(tmp_path) -> Path:
    path = make(tmp_path / "run", epochs=6, ranks=2)
    (path / "energy.json").write_text(json.dumps({"energy_j": 7.0, "samples": 64}, indent=1) + "\n")
    (path / "utilisation.csv").write_text(HEADER + "0.25,rank 0,1,1000,,\n")
    assert unisono.load(path).problems == []
    return path


def problems_after(path: Path, name: str, kept: bytes) -> list[str]:
    (path / name).write_bytes(kept)
    return unisono.load(path).problems


@pytest.mark.parametrize("name", ["energy.json", "sync_time.csv", "contributions.csv"])
def test_a_file_that_is_cut_in_half_is_named(name, run):
    whole = (run / name).read_bytes()
    (told,) = problems_after(run, name, whole[: len(whole) // 2])
    assert told.startswith(name)
    assert "cut short" in told


@pytest.mark.parametrize(
    ("name", "lines", "told"),
    [
        ("metrics.jsonl", 0, "is cut short: it has no epoch, and the run had 6"),
        ("metrics.jsonl", 2, "is cut short: it ends with epoch 2, and the run had 6"),
        ("ranks.csv", 0, "is cut short: it has no epoch, and the run had 6"),
        ("sync_time.csv", 0, "is cut short: it has no epoch, and the run had 6"),
        ("sync_time.csv", 1, "is cut short: it has no epoch, and the run had 6"),
        ("sync_time.csv", 4, "is cut short: it ends with epoch 3, and the run had 6"),
        ("contributions.csv", 8, "is cut short: it ends with epoch 4, and the run had 6"),
    ],
)
def test_whole_lines_that_are_missing_at_the_end_of_a_finished_run_are_named(name, lines, told, run):
    kept = b"".join((run / name).read_bytes().splitlines(keepends=True)[:lines])
    assert f"{name} {told}" in problems_after(run, name, kept)


@pytest.mark.parametrize(
    ("left", "told"),
    [([1, 3, 4, 5, 6], "lacks epoch 2"), ([1, 5, 6], "lacks epochs 2-4"), ([2, 4, 6], "lacks epochs 1, 3, 5")],
)
@pytest.mark.parametrize("over", [True, False])
def test_epochs_that_are_missing_in_the_middle_are_named(left, told, over, run):
    if not over:
        (run / "summary.json").unlink()
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    found = problems_after(run, "metrics.jsonl", b"".join(lines[epoch - 1] for epoch in left))
    assert f"metrics.jsonl {told}" in found


@pytest.mark.parametrize("length", [1, 20, len(HEADER) - 1])
def test_a_table_that_is_cut_within_its_header_is_named(length, run):
    cut = HEADER[:length].encode()
    assert problems_after(run, "utilisation.csv", cut) == ["utilisation.csv is cut short, within its header"]
    assert unisono.load(run).utilisation == {}


def test_an_empty_table_is_named_once_the_run_is_over(run):
    assert problems_after(run, "utilisation.csv", b"") == ["utilisation.csv is empty"]


def test_a_run_that_goes_on_may_be_at_any_line(run):
    (run / "summary.json").unlink()
    lines = (run / "sync_time.csv").read_bytes().splitlines(keepends=True)
    assert [told.split(" is ")[0] for told in problems_after(run, "sync_time.csv", b"".join(lines[:3]))] == [
        "summary.json"
    ]
    assert "sync_time.csv: the last line is cut short" in problems_after(run, "sync_time.csv", lines[0] + b"1, 0.0")


@pytest.mark.parametrize("epochs", ["six", -1, True, None, 1e300])
def test_a_summary_that_tells_nonsense_is_not_believed(epochs, run):
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"epochs": epochs}))
    assert unisono.load(run).problems == []


def test_lines_longer_than_what_is_looked_at_are_taken_as_they_are(run, monkeypatch):
    monkeypatch.setattr("unisono.report.run.integrity.TAIL_BYTES", 16)
    assert unisono.load(run).problems == []
