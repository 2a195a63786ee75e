"""Faults at random times, in short: `benchmarks/chaos.py` does the same for as long as one likes."""

import mmap
import random
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from chaos import Outcome
from relay import FAST, relay
from torment import KILL, STOP, TWICE, WHILE_STOPPED, Habits, Run, torment

from support.faults.trials import SMALL, STEPS, quiet
from unisono.arena.membership.member import Member
from unisono.runs.lifecycle import run_recipe

LIVELY = SMALL.with_options(epochs=200, eval_every=10, dropout=0.2, max_restarts=1000, snapshot_every="100steps")
FAULTS = 20


def hold_the_end(monkeypatch: Any) -> mmap.mmap:
    """Ranks wait before the last round until the first byte is set, however late the faults are."""
    mark, meet, last = mmap.mmap(-1, 4096), Member.barrier, (STEPS + 1) * LIVELY.learning.epochs + 1

    def met(member: Member, position: int, phase: int) -> bool:
        if position == last:
            member.wait(lambda: mark[0] > 0)
        return meet(member, position, phase)

    monkeypatch.setattr(Member, "barrier", met)
    return mark


@pytest.mark.parametrize("seed", [1])
def test_random_faults_leave_the_bits_alone_and_nothing_behind(monkeypatch, tmp_path, seed):
    recipe = LIVELY.with_options(out=str(tmp_path / "run"))
    habits = Habits(per_second=15, most=FAULTS, kinds=(KILL, KILL, STOP, TWICE, WHILE_STOPPED), stop_s=0.05)
    all_struck = hold_the_end(monkeypatch)
    with Run(partial(run_recipe, recipe), tmp_path / "log") as run:
        faults = torment(run, random.Random(seed), habits)
        everybody = [run.pid, *run.ranks()]
        listening = [port for pid in everybody for port in _ports(pid)]
        all_struck[0] = 1
        run.running(90.0)
        assert run.code() == 0, (tmp_path / "log").read_text()
        assert not any(Path(f"/proc/{pid}").exists() for pid in everybody)
    assert faults.total() == FAULTS
    assert listening == []
    found = Outcome.read(tmp_path / "run")
    assert found.summary["takeovers"] >= 5
    assert found.summary["weights_sha256"] == quiet(LIVELY).sha256


def _ports(pid: int) -> list[object]:
    try:
        return list(psutil.Process(pid).net_connections("inet"))
    except psutil.NoSuchProcess:
        return []


def test_the_whole_group_killed_and_resumed_on_other_ranks(tmp_path):
    found = relay(tmp_path, FAST, random.Random(3), kills=10)
    assert found.wrong == []
    assert found.kills >= 10
    assert found.resumes >= 3
    assert found.finished >= 1
