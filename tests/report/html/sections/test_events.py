"""Deaths among snapshots are found, whatever there is room for."""

import json
from pathlib import Path

import pytest

import unisono
from support.report.made_run import make
from unisono.report.html.document import document
from unisono.report.html.run_timeline import event_text
from unisono.report.html.sections.events import lines_of

DEATH = {"kind": "death", "rank": 2, "cause": "was killed (SIGKILL)", "reached": "COMMIT", "ranks": 3, "s": 0.002}


def snapshot(number: int) -> dict:
    return {"kind": "snapshot", "position": number, "path": f"snapshots/{number}", "s_after_start": float(number)}


def death(position: int) -> dict:
    return DEATH | {"position": position, "s_after_start": float(position)}


def run_of(tmp_path: Path, events: list[dict]) -> unisono.Run:
    path = make(tmp_path / "run", epochs=600)  # of two rounds each
    (path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return unisono.load(path)


def test_a_death_behind_hundreds_of_snapshots_is_on_the_page(tmp_path):
    events = [*map(snapshot, range(1, 402)), death(403), snapshot(405)]
    page = document([run_of(tmp_path, events)])
    happened = page[page.index("What happened") :]
    assert "rank 2 was killed (SIGKILL)" in happened
    assert "401 snapshots written" in happened
    assert "These are 403 events in at most 200 lines" in happened


def test_snapshots_that_follow_each_other_are_one_line_if_there_is_no_room(tmp_path):
    run = run_of(tmp_path, [snapshot(1), snapshot(3), death(5), snapshot(7), snapshot(9)])
    assert [line.what for line in lines_of(run, 5)].count("snapshot written") == 4
    folded = lines_of(run, 4)
    assert [(line.epoch, line.after) for line in folded] == [
        ("1 - 2", "1.0 s - 3.0 s"),
        ("3", "5.0 s"),
        ("4 - 5", "7.0 s - 9.0 s"),
    ]
    assert [line.kind for line in folded] == ["snapshot", "rank lost", "snapshot"]


@pytest.mark.parametrize(("latest", "epochs"), [(False, ["1 - 2", "3", "5"]), (True, ["3", "5", "6 - 7"])])
def test_what_is_no_snapshot_goes_first_and_the_order_is_kept(latest, epochs, tmp_path):
    events = [snapshot(1), snapshot(3), death(5), snapshot(7), death(9), snapshot(11), snapshot(13)]
    assert [line.epoch for line in lines_of(run_of(tmp_path, events), 3, latest=latest)] == epochs


@pytest.mark.parametrize(("latest", "epochs"), [(False, ["2", "3"]), (True, ["3", "4"])])
def test_of_too_many_deaths_the_first_or_the_last(latest, epochs, tmp_path):
    run = run_of(tmp_path, [snapshot(1), death(3), death(5), death(7)])
    assert [line.epoch for line in lines_of(run, 2, latest=latest)] == epochs


def test_a_snapshot_that_failed_is_not_folded_and_an_event_without_a_place_has_its_time(tmp_path):
    failed = {"kind": "snapshot", "position": 5, "path": None, "cause": "the disk is full", "s_after_start": 2.0}
    late = {"kind": "newcomer", "rank": 0, "cause": "came too late", "again": True, "s_after_start": 6.5}
    run = run_of(tmp_path, [snapshot(1), failed, late, {"kind": "?"}, snapshot(9), snapshot(11)])
    assert [(line.when, line.what) for line in lines_of(run, 5)][1:4] == [
        ("epoch 3", "a snapshot could not be written: the disk is full"),
        ("after 6.5 s", "a replacement of rank 0 came too late"),
        ("", "?"),
    ]


@pytest.mark.parametrize("seconds", ["1.5", None, 10**400], ids=["a text", "nothing", "a huge number"])
def test_an_event_with_values_that_cannot_be_is_told_by_its_kind(seconds):
    assert event_text(DEATH | {"s": seconds}) == "death"
