"""Ranks that do not move: waited for if it is not for long, else named, looked into, ended and taken over."""

import mmap
import os
import re
import select
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from relay import summary_of
from torment import Run

import unisono
from support.faults.plans import FROZEN, PULSED, Fault, Plan, fail, kill_at, loop_for_ever, stop
from support.faults.trials import CLOSING, SMALL, quiet, run
from unisono.arena.membership.protocol import COMMIT, READY
from unisono.errors import RankFailed
from unisono.runs.early_end import Halted
from unisono.runs.lifecycle import run_recipe
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.snapshots.snapshot import require_newest
from unisono.supervise.rank_processes import ASK, INCOMPLETE, WAITS
from unisono.supervise.stall_detector import FIRST_S, StallDetector

HASTY = SMALL.with_options(stall_timeout=1.0)
LONGER = SMALL.with_options(epochs=20)  # who was stopped goes on for a moment when asked for its stack


def be_patient(monkeypatch: Any, until: Callable[[], bool], stuck: int = 1) -> None:
    """Until that is so, and again once so many were stuck and ended: on a busy machine ranks that only lack a core for
    a second would be ended too."""
    patience_s, accuse, accused = StallDetector.patience_s, StallDetector.accuse, []

    def told(stall_detector: StallDetector) -> None:
        accused.append(stall_detector)
        accuse(stall_detector)

    def patience(stall_detector: StallDetector) -> float:
        return patience_s(stall_detector) if until() and len(accused) < stuck else FIRST_S

    monkeypatch.setattr(StallDetector, "accuse", told)
    monkeypatch.setattr(StallDetector, "patience_s", patience)


def test_a_rank_that_is_stopped_for_a_while_is_waited_for(monkeypatch, tmp_path):
    plan = Plan(Fault(1, PULSED, position=2, act=stop)).install(monkeypatch)
    recipe = SMALL.with_options(stall_timeout=30.0, out=str(tmp_path / "run"))
    with Run(partial(run_recipe, recipe)) as tormented:
        while not (found := [pid for pid in tormented.ranks() if _state(pid) == psutil.STATUS_STOPPED]):
            assert tormented.running(0.001)
        assert tormented.running(0.3)
        os.kill(found[0], signal.SIGCONT)
        tormented.running(60.0)
        assert tormented.code() == 0
    assert plan.fired() == [True]
    summary = summary_of(tmp_path / "run")
    assert (summary["takeovers"], summary["restarts"]) == (0, 0)
    assert summary["weights_sha256"] == quiet(SMALL).sha256


def _state(pid: int) -> str:
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.parametrize("position", [2, CLOSING])
@pytest.mark.parametrize("act", [stop, loop_for_ever])
def test_a_rank_that_never_moves_again_is_looked_into_and_taken_over(monkeypatch, tmp_path, act, position):
    plan = Plan(Fault(2, PULSED, position=position, act=act)).install(monkeypatch)
    be_patient(monkeypatch, lambda: plan.fired() == [True])
    monkeypatch.setitem(WAITS, ASK, 30.0)
    found = run(LONGER.with_options(stall_timeout=1.0), RunPlaces(log=tmp_path))
    assert plan.fired() == [True]
    found.check(quiet(LONGER))
    (event,) = deaths = [event for event in found.events if event["kind"] == "death"]
    assert [event["rank"] for event in deaths] == [2]
    told = "did not move for 1 s (--stall-timeout) and was ended"
    assert event["cause"] == f"{told} (its stack: {tmp_path / 'rank-2.stack'})"
    # Who was stopped may have gone on for a moment before it answered.
    text = (tmp_path / "rank-2.stack").read_bytes()
    assert (b"in loop_for_ever" if act is loop_for_ever else b"in run_rounds") in text
    assert INCOMPLETE not in text
    assert [path.name for path in tmp_path.iterdir()] == ["rank-2.stack"]  # nothing of those who had nothing to say


def test_a_rank_that_does_not_stand_still_when_another_dies(monkeypatch, tmp_path):
    plan = Plan(kill_at(0, 2, READY, "before"), Fault(3, FROZEN, act=stop)).install(monkeypatch)
    be_patient(monkeypatch, lambda: plan.fired()[0])
    found = run(HASTY, RunPlaces(log=tmp_path))
    assert plan.fired() == [True, True]
    found.check(quiet(SMALL))
    causes = {event["rank"]: event["cause"] for event in found.events if event["kind"] == "death"}
    assert causes[0] == "was killed by SIGKILL"
    assert causes[3].startswith("did not move for 1 s")


def test_everybody_stuck_ends_the_run_with_a_snapshot(monkeypatch, tmp_path):
    faults = [Fault(rank, PULSED, position=2, act=stop) for rank in range(4)]
    plan = Plan(*faults).install(monkeypatch)
    be_patient(monkeypatch, lambda: all(plan.fired()), stuck=4)
    with pytest.raises(Halted, match=r"no rank is left: rank \d did not move for 1 s") as halted:
        run(HASTY, RunPlaces(snapshots=tmp_path))
    assert plan.fired() == [True] * 4
    snapshot = require_newest(tmp_path)
    assert (str(snapshot.path), snapshot.position) == (halted.value.snapshot, 1)
    run(SMALL, snapshot=snapshot).check(quiet(SMALL))


@pytest.mark.parametrize("faults", [[], [kill_at(2, CLOSING, COMMIT, "after")]], ids=["nobody dies", "another dies"])
def test_a_rank_that_writes_to_a_slow_disk_is_waited_for(monkeypatch, tmp_path, faults):
    """The others would have to write the same, and would be ended too, for ever."""
    weights, flush = tmp_path / "weights.safetensors", os.fsync
    marks = mmap.mmap(-1, 4096)  # begun, done

    def slow(fd: int) -> None:
        if not weights.exists():  # the first epoch's
            marks[0] = 1
            select.select([], [], [], 2.5)
            marks[1] = 1
        flush(fd)

    monkeypatch.setattr("unisono.storage.weights.os.fsync", slow)
    plan = Plan(*faults).install(monkeypatch)
    be_patient(monkeypatch, lambda: not marks[1] and (marks[0] > 0 or any(plan.fired())))
    found = run(HASTY, RunPlaces(weights=weights))
    assert plan.fired() == [True] * len(faults)
    found.check(quiet(SMALL))
    assert found.deaths() == [fault.rank for fault in faults]
    assert [path.name for path in tmp_path.iterdir()] == [weights.name]


@pytest.mark.parametrize("rank", [0, 3])
def test_an_exception_is_no_fault_of_the_machine(monkeypatch, rank):
    """It would come again: the run ends at once, with its traceback."""
    plan = Plan(Fault(rank, PULSED, position=2, act=fail)).install(monkeypatch)
    with pytest.raises(RankFailed, match=r"(?s)Traceback.*ValueError: planned") as caught:
        run(SMALL)
    assert plan.fired() == [True]
    assert (caught.value.rank, caught.value.exit_code) == (rank, 1)


def test_nothing_depends_on_the_wall_clock():
    """A jump of it must not end anybody: only monotonic clocks."""
    package = Path(unisono.__file__).parent
    asked = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\(|\btime\.(gm|local)time\(")
    for folder in ("arena", "comm", "launch", "strategies", "supervise", "training"):
        for path in (package / folder).rglob("*.py"):
            assert not asked.search(path.read_text()), path
