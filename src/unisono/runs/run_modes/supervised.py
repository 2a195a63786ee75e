"""SupervisedMode: this process starts the ranks, on this machine: under a supervisor, or without take-over.

    RunLifecycle(Recipe.from_options(ranks=4), SupervisedMode()).run()

The one idea: this process writes the run directory and the terminal; the ranks compute and report to it.

Limits: take-over and snapshots need the arena; without it (gloo, the strategies of others) a death ends the run.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

from unisono.errors import UserError
from unisono.launch.connect import connect_gloo, require
from unisono.launch.local import run
from unisono.messages.rank_reports import RankProcess, StoppedAt
from unisono.os_limits import crowd_note
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.recorder import Recorder
from unisono.runs.run_modes.base import Allocation, RunMode, Value, refuse_snapshots
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.safe_print import print
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.supervise.signals import finish_undisturbed, ignore_requests, stop_requests
from unisono.training.checks import check_machine
from unisono.training.job import Job, prepare
from unisono.training.trainer import train as train_rank
from unisono.trust import Trust
from unisono.world import World


@final
class SupervisedMode(RunMode):
    """The parent of all ranks."""

    def __init__(self, restarts: int = 0, confirm: Callable[[Trust, Recipe], object] = Trust.check) -> None:
        """restarts: by a batch system. confirm: raises a `UserError` if code of the recipe may not run; it may ask."""
        self.restarts, self._confirm = restarts, confirm
        self._supervised_run: SupervisedRun | None = None

    @contextmanager
    def connect(self, recipe: Recipe) -> Iterator[Recipe]:
        if recipe.strategy.transport == "mpi":
            raise UserError(
                "--transport mpi, but no MPI started this process",
                hint=f"mpirun -n {recipe.ranks.count} unisono train --transport mpi ...; or leave --transport out",
            )
        if recipe.strategy.transport == "nccl":
            raise UserError(
                "--transport nccl, but no torchrun started this process",
                hint=f"torchrun --nproc-per-node {recipe.ranks.count} -m unisono train --transport nccl ...; or use "
                "gloo",
            )
        check_machine(recipe)
        if note := crowd_note(recipe.ranks.count, recipe.ranks.threads):
            print(note, file=sys.stderr, flush=True)
        self._transport = "shm" if recipe.strategy.transport == "auto" else recipe.strategy.transport
        require(self._transport)
        yield recipe

    def from_first(self, find: Callable[[], Value]) -> Value:
        return find()

    def prepare(self, recipe: Recipe, trust: Trust) -> Job:
        self._confirm(trust, recipe)
        self._job = job = prepare(recipe)
        job.spec.check_devices(job.recipe)
        return job

    def restore(self, position: int, snapshot: Snapshot | None) -> None:
        if not self._job.spec.on_arena or self._transport != "shm":
            refuse_snapshots(self._job.recipe)
            return
        self._supervised_run = SupervisedRun(self._job, RunPlaces())
        if snapshot is not None:
            self._supervised_run.resume(snapshot)

    def allocation(self) -> Allocation:
        recipe = self._job.recipe
        transport = self._job.spec.transport(recipe, self._transport)
        return Allocation(transport, [platform.node()], self._job.spec.devices(recipe, range(recipe.ranks.count)))

    def train(self, record: Recorder | None, failover_place: FailoverPlace) -> dict[str, Any]:
        assert record is not None
        record.energy.meter.measure_idle()
        return (
            self._run_without_take_over(record)
            if self._supervised_run is None
            else _supervise(self._supervised_run, record)
        )

    def _run_without_take_over(self, record: Recorder) -> dict[str, Any]:
        job, transport = self._job, self._transport

        def work(world: World) -> dict[str, Any] | StoppedAt:
            world.report(RankProcess(world.rank, os.getpid()))
            if transport == "shm":
                return train_rank(world, job, record.weights)
            with World(connect_gloo(world.comm), world.report) as over_gloo:
                return train_rank(over_gloo, job, record.weights)

        job.spec.warm_up()
        found: dict[str, Any] = run(work, job.recipe.ranks.count, on_report=lambda rank, value: record.add(value))[0]
        finish_undisturbed()
        return found


def _supervise(supervised_run: SupervisedRun, record: Recorder) -> dict[str, Any]:
    supervised_run.places = RunPlaces(record.weights, record.path / "snapshots", record.log)
    supervised_run.on_finished = finish_undisturbed
    with stop_requests(
        lambda: None, supervised_run.signals
    ):  # beyond the run's own: no echo falls between it and the end
        try:
            outcome = supervised_run.train(
                lambda rank, value: record.add(value), record.add_event, on_tick=record.energy.tick
            )
        except Halted:
            ignore_requests()
            raise
    found: dict[str, Any] = next(result for result in outcome.results.values() if result)
    return found | {"takeovers": outcome.takeovers, "restarts": outcome.restarts}
