"""Asynchronous ranks that exchange messages and that nobody watches over: asked to end, resumed, with other ranks, too.

Ranks are forked here, which is quick; `tests/faults/test_launchers.py` has real launchers.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unisono
from support.faults.trials import run
from support.strategies.async_reference import in_turn, reference
from unisono.errors import RESUME_ME, CommError
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.launched_training import Origin, train_launched
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.snapshots.snapshot import Snapshot, listed, require_newest, verified
from unisono.strategies.asynchronous.messages.message_master import MessageMaster
from unisono.strategies.asynchronous.messages.message_sequencer import MessageSequencer
from unisono.strategies.asynchronous.messages.message_worker import MessageWorker
from unisono.training.job import prepare
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")

RECIPE = Recipe.from_options(
    strategy="async", order="round-robin", ranks=5, masters=2, model="bn-mlp:300", batch_size=6, epochs=2,
    data="synthetic:classes=4,rows=90,features=8,test_rows=60", optimizer="adam", lr=0.01,
)  # fmt: skip
PUSHES = 15


@cache
def quiet() -> str:
    """The weights of a run that nothing happens to."""
    return reference(prepare(RECIPE), [in_turn(PUSHES, 2, 3)] * 2)


def train(
    recipe: Recipe, folder: Path | None = None, snapshot: Snapshot | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What every rank found, or {"halted": where, "code": ...}; and the records of the epochs."""
    recipe = recipe.with_options(resume="" if snapshot is None else str(snapshot.path.parent))
    job, records = prepare(recipe), []

    def work(world: World) -> dict[str, Any]:
        origin = Origin(snapshot.position if snapshot else 0, snapshot if world.rank == 0 else None)
        try:
            found = train_launched(world, job, RunPlaces(snapshots=folder), origin)
        except Halted as halted:
            return {"halted": halted.snapshot, "code": halted.exit_code}
        return {name: value for name, value in found.items() if not name.endswith(("_s", "_bytes"))}

    def hear(rank: int, value: dict[str, Any]) -> None:
        if isinstance(value, EpochRecord):
            records.append(value)

    found = unisono.run(work, recipe.ranks.count, on_report=hear, timeout_s=30.0)
    assert all(other == found[0] for other in found)
    return found[0], records


def ask() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def at_compute(monkeypatch: Any, wanted: Callable[[int, int, int], bool]) -> None:
    """A worker is asked when wanted(rank, epoch, batch)."""
    compute = MessageWorker._compute

    def asked(worker: MessageWorker, batch: Any, number: int, group: Any) -> None:
        if wanted(worker._comm.rank, batch.epoch, number):
            ask()
        compute(worker, batch, number, group)

    monkeypatch.setattr(MessageWorker, "_compute", asked)


def at_take(monkeypatch: Any, epoch: int, pushes: int) -> None:
    """The sequencer is asked when it has taken so many pushes of an epoch."""
    take = MessageSequencer._take

    def asked(sequencer: MessageSequencer, rank: int) -> None:
        take(sequencer, rank)
        if (sequencer._epoch, sequencer._sequencer.pushes) == (epoch, pushes):
            ask()

    monkeypatch.setattr(MessageSequencer, "_take", asked)


@pytest.mark.parametrize("rule", ["safe", "softsync"])
@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("who", ["a worker", "the clerk"])
def test_a_signal_to_one_rank_ends_all_in_the_middle_of_an_epoch(monkeypatch, tmp_path, who, epoch, rule):
    recipe = RECIPE.with_options(staleness_rule=rule)
    with monkeypatch.context() as patch:
        if who == "a worker":
            at_compute(patch, lambda rank, now, batch: (rank, now, batch) == (4, epoch, 12))
        else:
            at_take(patch, epoch, pushes=7)
        found, records = train(recipe, tmp_path)
    snapshot = require_newest(tmp_path)
    assert found == {"halted": str(snapshot.path), "code": RESUME_ME}
    assert len(records) == epoch - 1
    assert snapshot.position == 2 * (epoch - 1)
    steps = snapshot.arrays("tables")["steps"]
    done = np.flatnonzero(np.isfinite(steps[:, 0])).tolist()
    assert 0 < len(done) < PUSHES
    found, records = train(recipe, None, snapshot)
    assert found["epochs"] == 2
    assert [record.metrics["epoch"] for record in records] == [*range(epoch, 3)]
    rest = [batch for _, batch, *_ in records[0].pushes]
    assert Counter(done + rest) == Counter(range(PUSHES))
    assert np.isfinite(records[0].metrics["train_loss"])
    spent = records[0].metrics["epoch_s"] * records[0].metrics["samples_per_s"]
    assert spent == pytest.approx(6 * len(rest)), "samples that were done before take no time now"


@pytest.mark.parametrize("who", ["the other master", "a worker that is done"])
def test_whoever_has_nothing_to_send_is_heard_when_the_epoch_ends(monkeypatch, tmp_path, who):
    with monkeypatch.context() as patch:
        if who == "the other master":
            obey = MessageMaster.obey

            def asked(master: MessageMaster, entry: Any, epoch: int, *rest: Any) -> None:
                if (master._comm.rank, epoch, entry.ordinal) == (1, 1, 4):
                    ask()
                obey(master, entry, epoch, *rest)

            patch.setattr(MessageMaster, "obey", asked)
        else:
            worked = MessageWorker.epoch

            def done(worker: MessageWorker, batch: Any) -> None:
                worked(worker, batch)
                if (worker._comm.rank, batch.epoch) == (3, 1):
                    ask()

            patch.setattr(MessageWorker, "epoch", done)
        found, records = train(RECIPE, tmp_path)
    snapshot = require_newest(tmp_path)
    assert found["code"] == RESUME_ME
    assert (snapshot.position, records) == (1, [])  # all of the epoch but its evaluation
    found, records = train(RECIPE, None, snapshot)
    assert found["weights_sha256"] == quiet()
    assert [record.metrics["epoch"] for record in records] == [1, 2]
    assert np.isfinite(records[0].metrics["train_loss"])


def test_snapshots_between_epochs_lead_to_the_same_end(tmp_path, monkeypatch):
    recipe = RECIPE.with_options(snapshot_every="1epochs", keep=5)
    found, _ = train(recipe, tmp_path)
    assert found["weights_sha256"] == quiet()
    assert 2 in (positions := [verified(path).position for path in listed(tmp_path)])
    (first,) = [verified(path) for path in listed(tmp_path) if verified(path).position == 2]
    assert max(positions) == 4
    assert train(RECIPE, None, first)[0]["weights_sha256"] == quiet()
    # In the arena as well: a snapshot does not know how gradients travel.
    assert run(RECIPE, snapshot=first).sha256 == quiet()


def test_a_run_of_the_arena_goes_on_over_messages(tmp_path):
    run(RECIPE.with_options(epochs=1, snapshot_every="1epochs"), RunPlaces(snapshots=tmp_path))
    assert train(RECIPE, None, require_newest(tmp_path))[0]["weights_sha256"] == quiet()


@pytest.mark.parametrize(("masters", "ranks"), [(1, 3), (3, 5)])
def test_other_ranks_go_on_with_what_was_left(monkeypatch, tmp_path, masters, ranks):
    with monkeypatch.context() as patch:
        at_take(patch, 1, pushes=7)
        train(RECIPE, tmp_path)
    snapshot = require_newest(tmp_path)
    done = np.flatnonzero(np.isfinite(snapshot.arrays("tables")["steps"][:, 0])).tolist()
    recipe = RECIPE.with_options(masters=masters, ranks=ranks, allow_change="ranks,masters")
    found, records = train(recipe, None, snapshot)
    assert found["epochs"] == 2
    assert Counter(done + [batch for _, batch, *_ in records[0].pushes]) == Counter(range(PUSHES))


def test_asked_between_epochs_it_ends_before_the_first_push(monkeypatch, tmp_path):
    begin = MessageSequencer._begin

    def asked(sequencer: MessageSequencer, epoch: int, pushes: int) -> Any:
        if epoch == 2:
            ask()
        return begin(sequencer, epoch, pushes)

    with monkeypatch.context() as patch:
        patch.setattr(MessageSequencer, "_begin", asked)
        found, records = train(RECIPE, tmp_path)
    assert found["code"] == RESUME_ME
    assert len(records) == 1
    snapshot = require_newest(tmp_path)
    assert snapshot.position == 2
    assert train(RECIPE, None, snapshot)[0]["weights_sha256"] == quiet()


@pytest.mark.parametrize("gone", [[2], []])
def test_a_connection_that_breaks_is_told_with_the_name_of_who_is_gone(monkeypatch, gone):
    def broken(*given: Any) -> None:
        raise CommError("rank 0: the connection broke on entering barrier; rank 1, 2 had not arrived")

    monkeypatch.setattr("unisono.runs.launched_training.run_rounds", broken)
    monkeypatch.setattr("unisono.runs.launched_training._ENDING_S", 0.0)
    monkeypatch.setattr("unisono.comm.topology.local_peer_watch.PeerWatch.exited", lambda peer_watch: gone)
    job = prepare(RECIPE)

    def work(world: World) -> list[str]:
        with pytest.raises(CommError) as caught:
            train_launched(world, job, RunPlaces())
        return [type(caught.value).__name__, str(caught.value)]

    for rank, (kind, text) in enumerate(unisono.run(work, RECIPE.ranks.count)):
        if gone:
            assert kind == "RankLost"
            assert f"rank {rank}: rank 2 is gone" in text
        else:
            assert "the connection broke" in text
