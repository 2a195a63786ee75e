"""Events are written as they always were, and lines of earlier versions are read."""

import json

import pytest

from unisono.messages.events import (
    NOBODY,
    OTHERS,
    RankDied,
    RankJoined,
    ReplacementFailed,
    SnapshotFailed,
    SnapshotWritten,
    StopRequested,
    read_event,
)

DIED = RankDied(1, "was killed by SIGKILL", True, 7, "commit", 3, 0.5, OTHERS)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            DIED,
            {
                "kind": "death", "rank": 1, "cause": "was killed by SIGKILL", "worked": True, "position": 7,
                "reached": "commit", "ranks": 3, "s": 0.5, "taken_over_by": "others", "stalled": False,
            },
        ),
        (
            RankJoined(1, 7, "commit", 4, 0.5),
            {"kind": "join", "rank": 1, "position": 7, "reached": "commit", "ranks": 4, "s": 0.5},
        ),
        (ReplacementFailed(1, "late", False), {"kind": "newcomer", "rank": 1, "cause": "late", "again": False}),
        (SnapshotWritten(7, "snapshots/1"), {"kind": "snapshot", "position": 7, "path": "snapshots/1"}),
        (SnapshotWritten(7, "/x", "full"), {"kind": "snapshot", "position": 7, "path": "/x", "cause": "full"}),
        (SnapshotFailed(7, "full"), {"kind": "snapshot", "position": 7, "path": None, "cause": "full"}),
        (StopRequested(), {"kind": "asked to end"}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)  # fmt: skip
def test_lines(event, line):
    assert list(event.to_json().items()) == list(line.items()), "in this order, too"
    assert read_event(json.loads(json.dumps(line)) | {"s_after_start": 1.0}) == event


def test_lines_of_earlier_versions():
    old = {"kind": "death", "rank": 1, "cause": "did not move for 60 s (--stall-timeout) and was ended", "s": 0.5}
    found = read_event(old | {"ranks": 0})
    assert isinstance(found, RankDied)
    assert (found.stalled, found.taken_over_by) == (True, NOBODY)
    found = read_event(old | {"ranks": 2, "cause": "was killed"})
    assert isinstance(found, RankDied)
    assert (found.stalled, found.taken_over_by) == (False, OTHERS)


def test_whether_a_rank_stalled_is_said_by_the_field_not_by_the_words():
    found = read_event(DIED.to_json() | {"cause": "did not move", "stalled": False})
    assert isinstance(found, RankDied)
    assert not found.stalled


@pytest.mark.parametrize(
    "line",
    [
        {}, {"kind": "?"}, {"kind": []}, {"kind": "death"}, DIED.to_json() | {"rank": "x"},
        DIED.to_json() | {"s": None}, DIED.to_json() | {"s": 10**400}, DIED.to_json() | {"ranks": True},
        {"kind": "snapshot", "path": 3},
    ],
)  # fmt: skip
def test_what_is_none_of_ours_is_none(line):
    assert read_event(line) is None
