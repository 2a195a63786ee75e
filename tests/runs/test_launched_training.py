"""Ranks that nobody watches over: snapshots by the first of them, an end that all share, going on elsewhere.

Ranks are forked here, which is quick; `tests/faults/test_launchers.py` has real launchers. Of those that die or fail
tells `test_launched_training_losses.py`.
"""

import os
import signal
from dataclasses import replace
from typing import Any

import pytest

import unisono
from support.training.launched_runs import SMALL, WAYS, every, train
from unisono.errors import RESUME_ME, UserError
from unisono.runs.launched_training import Origin, train_launched
from unisono.runs.snapshots import saver
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.snapshots.snapshot import listed, require_newest, verified
from unisono.storage.snapshots.writer import NotWritten
from unisono.training.job import Job, prepare
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")


@pytest.fixture(scope="module", params=WAYS)
def job(request) -> Job:
    return prepare(SMALL.with_options(allreduce=request.param))


@pytest.fixture(scope="module")
def expected(job) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unisono.training.epoch_end.shard_overhead", lambda *given: 1.0)
        return train(job)


def snapshots(job: Job, text: str) -> Job:
    return replace(job, recipe=every(text, job.recipe))


def test_snapshots_are_made_when_they_are_due_and_each_leads_to_the_same_end(job, expected, tmp_path, patient):
    events: list[dict[str, Any]] = []
    found = train(snapshots(job, "2steps"), RunPlaces(snapshots=tmp_path), events=events)
    assert found == expected
    positions = [verified(path).position for path in reversed(listed(tmp_path))]
    assert positions == [2, 5, 7, 10, 13, 15, 16]  # 2, 4, 6 ... steps, and the end
    assert positions == [event["position"] for event in events]
    for path in listed(tmp_path):
        assert train(job, snapshot=verified(path)) == expected


def test_snapshots_of_epochs_and_by_the_clock(job, expected, tmp_path, patient):
    assert train(snapshots(job, "1epochs"), RunPlaces(snapshots=tmp_path / "epochs")) == expected
    positions = [verified(path).position for path in listed(tmp_path / "epochs")]
    assert positions == [16, 16, 12, 8, 4]  # the last one twice: also as the end
    assert train(job, snapshot=verified(listed(tmp_path / "epochs")[-1])) == expected
    assert train(snapshots(job, "0.000001s"), RunPlaces(snapshots=tmp_path / "clock")) == expected
    assert len(listed(tmp_path / "clock")) > 5


def test_the_arena_goes_on_with_other_ranks_and_the_same_bits(job, expected, tmp_path, patient):
    train(snapshots(job, "5steps"), RunPlaces(snapshots=tmp_path))
    found = train(replace(job, recipe=job.recipe.with_options(ranks=3)), snapshot=verified(listed(tmp_path)[-1]))
    same = found["weights_sha256"] == expected["weights_sha256"]
    assert same == (job.recipe.strategy.allreduce == "arena")


@pytest.mark.parametrize(("number", "rank"), [(signal.SIGTERM, 0), (signal.SIGUSR1, 1), (signal.SIGHUP, 1)])
def test_a_signal_to_any_rank_ends_all_at_one_step_with_a_snapshot(job, expected, tmp_path, number, rank):
    def ask(world: World, step: int) -> None:
        if (world.rank, step) == (rank, 5):
            os.kill(os.getpid(), number)

    found = train(job, RunPlaces(snapshots=tmp_path), at_step=ask)  # of all ranks: they are compared
    snapshot = require_newest(tmp_path)
    assert (found["code"], found["halted"]) == (RESUME_ME, str(snapshot.path))
    # What one asks in its fifth step the others obey after it, or after the next.
    assert snapshot.facts["steps_done"] == found["steps"]
    assert found["steps"] in (5, 6)
    assert train(job, snapshot=snapshot) == expected


def test_a_second_signal_of_a_kind_ends_at_once(job, tmp_path, monkeypatch):
    monkeypatch.setattr("unisono.supervise.signals.REPEAT_S", 0.0)

    def ask(world: World, step: int) -> None:
        if (world.rank, step) == (1, 5):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(unisono.RankFailed, match="KeyboardInterrupt") as caught:
        train(job, RunPlaces(snapshots=tmp_path), at_step=ask)
    assert caught.value.rank == 1
    if job.recipe.strategy.allreduce != "arena":  # the first rank, not asked twice, saves what was reached there
        assert listed(tmp_path) == []


def test_an_end_that_cannot_be_saved_is_a_failure_on_every_rank(job, tmp_path, monkeypatch):
    def write(*given: Any, **options: Any) -> Any:
        raise NotWritten("the snapshot cannot be written: No space left on device", hint="make room")

    monkeypatch.setattr(saver, "write", write)
    monkeypatch.setattr("unisono.storage.fallback_writer.PATIENCE_S", 0.0)
    found = train(
        job,
        RunPlaces(snapshots=tmp_path),
        at_step=lambda world, step: step == 4 and os.kill(os.getpid(), signal.SIGUSR1),
    )
    assert (found["code"], found["halted"]) == (1, "")


def test_what_cannot_be_put_back_is_told_to_all(job, tmp_path, patient):
    train(snapshots(job, "2steps"), RunPlaces(snapshots=tmp_path))
    snapshot = require_newest(tmp_path)
    (snapshot.path / "state.safetensors").write_bytes(b"")

    def work(world: World) -> str:
        try:
            train_launched(world, job, RunPlaces(), Origin(snapshot.position, snapshot if world.rank == 0 else None))
        except UserError as error:
            return str(error)
        return "nothing was refused"

    first, second = unisono.run(work, 2, timeout_s=30.0)
    assert first == second
    assert "state.safetensors is 0 bytes long" in first
