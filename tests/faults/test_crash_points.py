"""`benchmarks/crash_points.py` in short: processes are killed at lines of the real code, and every run ends with the
bits of the quiet one. Other lines each time: the seed is printed."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from crash_jobs import DEATH, HALT, HALTING, REPLACEMENT, RESUMED, SECOND
from crash_plans import Plans
from crash_tracer import FILES, Fault, place
from crash_trials import DIFFERENT, EQUAL, Outcome, Trial, quiet

from unisono.strategies.arena.state import ArenaState

COMMAND = Path(__file__).parents[2] / "benchmarks" / "crash_points.py"
POINTS = 24
LINE = Fault.parse("r0.0@arena/membership/member.py:7#1").line


@pytest.mark.timeout(600)
def test_processes_that_are_killed_at_any_line_change_nothing():
    pytest.importorskip("torch")
    seed = int.from_bytes(os.urandom(3))
    command = [sys.executable, str(COMMAND), "--points", str(POINTS), "--seed", str(seed), "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {seed}" in done.stdout
    assert f"\n{POINTS} points (" in done.stdout
    assert done.stdout.endswith(f"{POINTS} equal, 0 different, 0 failed, 0 hung, 0 left processes behind\n")


def test_an_update_that_is_not_taken_back_is_found(monkeypatch, tmp_path):
    """A rank dies in the middle of its update: its momentum is changed, its parameters are not."""
    expected = quiet("plain", tmp_path)
    lines = Trial("plain").run(expected, tmp_path).after["r1", 0]
    within = [line for line in lines if place(line).startswith("optim/sgd.py")]
    trial = Trial("plain", (Fault("r1", 0, max(within), 2),))
    whole = trial.run(expected, tmp_path)
    assert (whole.verdict, whole.fired, whole.starts) == (EQUAL, 1, 1), whole.told
    monkeypatch.setattr(ArenaState, "restore", lambda shared, view: None)
    assert trial.run(expected, tmp_path).verdict == DIFFERENT


def test_a_plan_is_written_and_read_back():
    text = "sync:r1.0@strategies/arena/update.py:112#3+term=r0.2@arena/membership/member.py:7#1"
    trial = Trial.parse(text)
    assert str(trial) == text
    assert trial.faults[1] == Fault("r0", 2, LINE, 1, "term")
    assert FILES[LINE >> 12] == "arena/membership/member.py"


def drawn(plans: Plans) -> list[tuple[str, Trial]]:
    found = []
    while (one := plans.draw()) is not None:
        found.append(one)
    return found


def test_every_point_is_drawn_once_and_every_line_before_any_line_twice():
    plans = Plans(random.Random(1))
    lines = Counter({LINE: 3, LINE + 1: 1, LINE + 2: 2})
    plans.learn("", Trial("sync"), Outcome(EQUAL, 0, after={("r1", 0): lines}))
    deaths = [trial.faults[0] for kind, trial in drawn(plans) if kind == DEATH]
    assert {fault.line for fault in deaths[:3]} == set(lines)
    assert sorted((fault.line, fault.count) for fault in deaths) == [
        (LINE, 1), (LINE, 2), (LINE, 3), (LINE + 1, 1), (LINE + 2, 1), (LINE + 2, 2)
    ]  # fmt: skip


def test_what_follows_a_fault_is_where_the_next_one_strikes():
    after = {(role, life): Counter({LINE: 1}) for role, life in (("r0", 0), ("r1", 0), ("r1", 1), ("s", 0))}
    first = Fault("r1", 0, LINE, 1)
    for kind, act, expected in (
        (DEATH, "kill", {SECOND: {("r0", 0)}, REPLACEMENT: {("r1", 1)}}),
        (HALT, "term", {HALTING: {("r0", 0), ("r1", 0)}, RESUMED: {("r1", 1)}}),
    ):
        plans = Plans(random.Random(1))
        trial = Trial("sync", (Fault(first.role, 0, LINE, 1, act),))
        plans.learn(kind, trial, Outcome(EQUAL, 1, after=after))
        found: dict[str, set[tuple[str, int]]] = {}
        for follower, plan in drawn(plans):
            assert plan.faults[0] == trial.faults[0]
            found.setdefault(follower, set()).add((plan.faults[1].role, plan.faults[1].life))
        assert found == expected


def test_a_run_that_was_not_hit_leads_nowhere():
    plans = Plans(random.Random(1))
    missed = Outcome(EQUAL, 0, after={("r0", 0): Counter({LINE: 1})})
    plans.learn(DEATH, Trial("sync", (Fault("r1", 0, LINE, 99),)), missed)
    assert plans.draw() is None
