"""A team: it can be resumed anywhere, by any number of ranks, and says why it could not go on."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from support.faults.trials import quiet, resume, run
from unisono.errors import RESUME_ME, Diverged, NodeLost, UnisonoError
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.supervised_training import LEAST_CRASHES, RunPlaces, SupervisedRun
from unisono.storage.snapshots.snapshot import require_newest
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.base import Strategy
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.strategies.machines.mailbox import RemoteView
from unisono.supervise.config import SupervisorResult
from unisono.training.job import prepare
from unisono.training.round_schedule import RoundSchedule
from unisono.training.trainer import run_rounds

RECIPE = Recipe.from_options(
    ranks=2, model="mlp:40", data="synthetic:classes=4,rows=90,features=8,test_rows=300", batch_size=32, epochs=3,
    dropout=0.2, optimizer="adam",
)  # fmt: skip
WALK = RoundSchedule(steps=3, epochs=3)

pytestmark = pytest.mark.usefixtures("no_price")


def halt(recipe: Recipe, position: int, folder: Path, monkeypatch: Any) -> Halted:
    """Runs until round `position`, after which it was asked to end."""

    def walk(strategy: Strategy, *rest: Any) -> dict[str, Any]:
        monkeypatch.setattr(strategy, "halts_after", lambda done: done == position)
        return run_rounds(strategy, *rest)

    with monkeypatch.context() as patch:
        patch.setattr("unisono.runs.supervised_training.run_rounds", walk)
        with pytest.raises(Halted) as caught:
            run(recipe, RunPlaces(snapshots=folder))
    return caught.value


def exchanger(why: Callable[[], str] = str) -> Any:
    """What a machine of several has beside its ranks, with nothing behind it."""
    nothing = {"attach": lambda *given: None, "tick": lambda: None, "why": why}
    return SimpleNamespace(**nothing, first_lost=False, crashes=0, lost_nodes=(), certain=True)


@pytest.mark.parametrize("position", range(WALK.final))
def test_a_run_can_end_after_any_round_and_go_on_on_other_ranks(monkeypatch, tmp_path, position):
    if position == 0:
        with monkeypatch.context() as patch:
            patch.setattr(SupervisedRun, "_live", lambda *given: os.kill(os.getpid(), signal.SIGKILL))
            with pytest.raises(Halted, match="no rank is left"):
                run(RECIPE.with_options(respawn=False), RunPlaces(snapshots=tmp_path))
    else:
        assert halt(RECIPE, position, tmp_path, monkeypatch).exit_code == RESUME_ME
    snapshot = require_newest(tmp_path)
    assert snapshot.position == position
    for ranks in (1, 3):
        resume(RECIPE.with_options(ranks=ranks), snapshot)


@pytest.mark.parametrize(("given", "reached"), [({}, 6), ({"strategy": "local", "sync_every": 3}, 4)])
def test_what_was_reached_is_not_asked_of_a_rank_that_joined_in_the_middle(monkeypatch, tmp_path, given, reached):
    """Another machine is lost in round 7, and before that the ranks that wait for it are replaced, one by one."""
    recipe = RECIPE.with_options(optimizer="momentum", **given)

    def wait_in_vain(strategy: SyncArena, position: int) -> None:
        if position == 7:
            member = strategy._member
            if (member.view.number, member.slot) in ((1, 0), (3, 1)):  # each, when both are there
                os.kill(os.getpid(), signal.SIGKILL)
            if member.view.number < 5:
                member.wait(lambda: False)
            raise NodeLost("another machine was lost", first_hand=False)

    with monkeypatch.context() as patch:
        patch.setattr(SyncArena, "_fetch_remote", wait_in_vain)
        with pytest.raises(Halted, match="asked to end"):
            run(recipe, RunPlaces(snapshots=tmp_path))
    snapshot = require_newest(tmp_path)
    assert snapshot.position == reached
    resume(recipe, snapshot)


@pytest.mark.parametrize("asked", [True, False])
def test_a_machine_that_has_a_part_of_the_replicas_saves_nothing_and_says_so(monkeypatch, tmp_path, asked):
    job = prepare(RECIPE.with_options(strategy="local", sync_every=3))
    remote = RemoteView(MachineLayout.of([0, 0, 1], 0, job.recipe.ranks.shards), ("a", "a", "b"))
    places = RunPlaces(snapshots=tmp_path)

    def end(strategy: SyncArena, position: int) -> None:
        if position == 7 and not asked:
            raise NodeLost("another machine was lost", first_hand=False)

    monkeypatch.setattr(SyncArena, "_fetch_remote", end)
    monkeypatch.setattr(SyncArena, "halts_after", lambda strategy, position: asked and position == 7)
    with pytest.raises(Halted, match="nothing was saved: of --strategy local on several nodes") as caught:
        SupervisedRun(job, places, remote=remote).train(lambda rank, record: None, exchanger=exchanger())
    assert caught.value.exit_code == 1, "there is nothing to resume"
    assert not list(tmp_path.iterdir())


def test_ranks_have_the_recipe_s_threads_of_blas_and_this_process_its_own_afterwards(monkeypatch):
    def threads() -> set[int]:
        return {entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}

    monkeypatch.setattr("unisono.runs.supervised_training.run_rounds", lambda *given: {"threads": sorted(threads())})
    with threadpool_limits(2, user_api="blas"):
        outcome = SupervisedRun(prepare(RECIPE.with_options(threads=1)), RunPlaces()).train(lambda rank, record: None)
        assert threads() == {2}
    assert {tuple(found["threads"]) for found in outcome.results.values()} == {(1,)}


def test_ranks_that_share_a_core_come_home_every_now_and_then(monkeypatch, tmp_path):
    """Ranks are forked: what one of them calls it leaves in a file of its own."""

    def go_to(home: set[int], allowed: set[int]) -> None:
        (tmp_path / str(os.getpid())).write_text(f"{home} of {allowed}")

    monkeypatch.setattr("unisono.training.core_spreading.go_to", go_to)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    run(RECIPE)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["{5} of {5}"] * RECIPE.ranks.count


def test_what_is_no_loss_is_not_saved(monkeypatch, tmp_path):
    def end(strategy: SyncArena, position: int) -> None:
        if position == 4:
            raise Diverged("the machines have different parameters")

    def why() -> str:
        raise UnisonoError("node 1 and node 0 have different parameters")

    monkeypatch.setattr(SyncArena, "_fetch_remote", end)
    remote = RemoteView(MachineLayout.of([0, 0, 1], 0, 8), ("a", "a", "b"))
    with pytest.raises(UnisonoError, match="node 1 and node 0 have different parameters") as caught:
        SupervisedRun(prepare(RECIPE), RunPlaces(snapshots=tmp_path), remote=remote).train(
            lambda rank, record: None, exchanger=exchanger(why)
        )
    assert not isinstance(caught.value, Halted)
    assert not list(tmp_path.iterdir())


EARLY = RECIPE.with_options(epochs=8, target_accuracy=0.1, patience=2)


def test_a_run_that_stopped_early_is_resumed_to_its_final_round(monkeypatch, tmp_path):
    assert quiet(EARLY).epochs[0]["epochs"] == 2
    halt(EARLY, WALK.position(2, WALK.steps), tmp_path, monkeypatch)
    resume(EARLY.with_options(ranks=3), require_newest(tmp_path))  # nothing is trained again


@pytest.mark.parametrize("when", ["in its final round", "after it"])
def test_a_run_that_stopped_early_and_lost_everybody_at_the_end(monkeypatch, tmp_path, when):
    recipe = EARLY.with_options(respawn=False)

    def die(*given: Any) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr("unisono.training.epoch_end.OVERHEAD_S", 1e9)  # on a busy machine shards would not be priced
        name = "pss_bytes" if when == "in its final round" else "shard_overhead"
        patch.setattr(f"unisono.training.epoch_end.{name}", die)
        with pytest.raises(Halted, match="no rank is left"):
            run(recipe, RunPlaces(snapshots=tmp_path))
    snapshot = require_newest(tmp_path)
    assert snapshot.position == WALK.position(2, WALK.steps)
    resume(recipe, snapshot)


def test_a_round_that_ends_whoever_computes_it(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr("unisono.training.epoch_end.blocks_of", lambda x: os._exit(3))
        with pytest.raises(Halted) as caught:
            run(RECIPE, RunPlaces(snapshots=tmp_path))
    ended = caught.value.outcome.crashes
    assert 2 <= ended <= LEAST_CRASHES + RECIPE.ranks.count
    assert f"the evaluation after epoch 1 ended {ended} ranks one after another, the last: rank" in str(caught.value)
    assert "HINT: resuming will not help" in str(caught.value)
    assert caught.value.exit_code == 1
    assert require_newest(tmp_path).position == WALK.position(1, WALK.steps) - 1


def test_what_is_said_of_an_end_before_its_time(tmp_path):
    asked = Halted(SupervisorResult(), "runs/mine/snapshots/000001-000000000007")
    assert str(asked).splitlines() == [
        "the run was asked to end; everything up to here is in runs/mine/snapshots/000001-000000000007",
        "HINT: go on with unisono train --resume runs/mine",
    ]
    lost = Halted(SupervisorResult(lost="no rank is left: rank 0 was killed by SIGKILL"), "")
    assert str(lost) == "the run cannot go on: no rank is left: rank 0 was killed by SIGKILL; nothing was to be kept"
    assert (asked.exit_code, lost.exit_code) == (75, 75)
    once = Halted(
        SupervisorResult(lost="no rank is left: rank 0 was killed by SIGSEGV", crashes=1), "runs/mine/snapshots/1"
    )
    assert str(once).endswith("--resume runs/mine; if the same step ends it again, correct what that step computes: "
                              "resuming will not help")  # fmt: skip
    assert once.exit_code == 75


FORKS = """
import torch
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.training.job import prepare
from unisono.training.bits_and_speed_trials import precision_notes
from unisono.runs.supervised_training import RunPlaces, SupervisedRun

data = "synthetic:classes=4,rows=64,features=64,test_rows=0"
options = dict(engine="torch", precision="bf16", threads=2, batch_size=64)
job = prepare(Recipe.from_options(ranks=2, model="mlp:300", data=data, **options))
precision_notes(job)
print("trained", SupervisedRun(job, RunPlaces()).train(lambda rank, value: None).lost)
torch.set_num_threads(2)
torch.ones(600, 600) @ torch.ones(600, 600)
try:
    SupervisedRun(job, RunPlaces()).train(lambda rank, value: None)
except UserError as error:
    print("refused", error)
"""


def test_ranks_with_threads_are_forked_from_a_process_without_them():
    """A rank that inherits torch's threads, which a fork does not copy, waits for them for ever."""
    pytest.importorskip("torch")
    ended = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout.startswith("trained \nrefused torch has started threads in this process")
    assert "HINT: train before anything is computed with torch here" in ended.stdout
