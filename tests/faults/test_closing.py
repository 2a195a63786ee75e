"""A death while an epoch is closed or the run ends: every epoch is written down, and once."""

import json
from itertools import product

import pytest

from support.faults.plans import PULSED, REPORT, Fault, Plan, kill_at
from support.faults.trials import CLOSING, FINAL, SMALL, quiet, run, trial
from unisono.arena.membership.protocol import COMMIT, READY
from unisono.runs.early_end import Halted
from unisono.runs.lifecycle import run_recipe
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.snapshots.snapshot import require_newest

FIRST_TELLS = {
    "before it is told": Fault(0, f"{REPORT} EpochRecord"),
    "told": Fault(0, f"{REPORT} EpochRecord", "after"),
}


MEETINGS = [
    kill_at(rank, position, phase, when)
    for position, rank, phase, when in product((CLOSING, FINAL), (0, 3), (READY, COMMIT), ("before", "after"))
]
EVALUATIONS = [Fault(rank, PULSED, position=position) for rank, position in product((0, 2, 3), (CLOSING, FINAL))]


@pytest.mark.parametrize("fault", [*MEETINGS, *EVALUATIONS], ids=str)
def test_around_its_meetings_and_in_the_middle_of_an_evaluation(monkeypatch, fault):
    trial(monkeypatch, SMALL, fault).check(quiet(SMALL))


@pytest.mark.parametrize("fault", FIRST_TELLS.values(), ids=FIRST_TELLS)
def test_the_rank_that_tells_the_epoch(monkeypatch, fault):
    found = trial(monkeypatch, SMALL, fault)
    found.check(quiet(SMALL))
    assert found.told == ([1, 1, 2] if fault.when == "after" else [1, 2])


@pytest.mark.parametrize("fault", FIRST_TELLS.values(), ids=FIRST_TELLS)
def test_metrics_have_every_epoch_once(monkeypatch, tmp_path, capsys, fault):
    plan = Plan(fault, kill_at(1, FINAL, COMMIT, "before")).install(monkeypatch)
    summary = run_recipe(SMALL.with_options(out=str(tmp_path / "run")))
    assert plan.fired() == [True, True]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = {line["epoch"]: {name: value for name, value in line.items() if not name.endswith("_s")} for line in lines}
    assert [line["epoch"] for line in lines] == [1, 2]
    assert told == {epoch: numbers for epoch, numbers in quiet(SMALL).epochs.items() if epoch}
    assert (summary["status"], summary["takeovers"], summary["restarts"]) == ("finished", 2, 2)
    assert summary["weights_sha256"] == quiet(SMALL).sha256
    events = [json.loads(line)["kind"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert events.count("death") == 2
    assert "rank 0 was killed by SIGKILL; the other 3 took over" in capsys.readouterr().out


def test_everybody_after_everything_was_done(monkeypatch, tmp_path):
    """Nobody is left to say what was found: the run is resumable, and resumed it says so."""
    plan = Plan(*(kill_at(rank, FINAL, COMMIT, "after") for rank in range(4))).install(monkeypatch)
    with pytest.raises(Halted, match="no rank is left") as caught:
        run(SMALL.with_options(respawn=False), RunPlaces(snapshots=tmp_path))
    assert caught.value.outcome.takeovers < 4, "nobody takes over from the last one"
    assert plan.fired() == [True] * 4
    found = run(SMALL, snapshot=require_newest(tmp_path))
    assert found.sha256 == quiet(SMALL).sha256
    assert found.epochs[0] == quiet(SMALL).epochs[0]
