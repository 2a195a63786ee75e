"""A run: one recipe from start to verdict, as the parent of its ranks or as one of them.

    run_recipe(Recipe(ranks=4))

The one idea: whoever writes the run directory and the terminal is one process: the parent, or rank 0 where another
launcher (mpirun, torchrun, srun) started the ranks. The others are silent.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import numpy as np

from unisono import __version__
from unisono.comm.base import DEFAULT_TIMEOUT_S, Communicator
from unisono.comm.node import node_colour
from unisono.data.sharing import load_once
from unisono.errors import RankFailed, UnisonoError, UserError
from unisono.launch.connect import connect, connect_gloo, require
from unisono.launch.environments import detect
from unisono.launch.local import run
from unisono.launch.placement import Placement
from unisono.recipe import Recipe
from unisono.report.loss import plot_loss
from unisono.report.train import epoch_line, opening, rank_lines, verdict
from unisono.resources import machine, usable_cores
from unisono.train.job import Job, load_data, prepare
from unisono.train.rundir import RunDirectory
from unisono.train.trainer import train as train_rank
from unisono.world import World


def run_recipe(recipe: Recipe) -> dict[str, Any] | None:
    """Runs a recipe from start to verdict; the summary, on the process that writes it.

    Alone, this process starts the ranks. Started by mpirun, torchrun or srun, it is one of them.
    """
    placement = detect()
    return _as_parent(recipe) if placement.size == 1 else _as_rank(recipe, placement)


def _as_parent(recipe: Recipe) -> dict[str, Any]:
    if recipe.transport == "mpi":
        raise UserError(
            "--transport mpi, but no MPI started this process",
            hint=f"mpirun -n {recipe.ranks} unisono train --transport mpi ...; or leave --transport out",
        )
    transport = "shm" if recipe.transport == "auto" else recipe.transport
    require(transport)
    job = prepare(recipe)
    record = Recorder(job, transport)

    def work(world: World) -> dict[str, Any]:
        if transport == "shm":
            return train_rank(world, job, record.weights)
        with World(connect_gloo(world.comm), world.report) as over_gloo:
            return train_rank(over_gloo, job, record.weights)

    try:
        found = run(work, recipe.ranks, on_report=lambda rank, value: record.add(value))[0]
    except RankFailed as error:
        record.fail(error.report)
        if error.report.startswith("Traceback"):
            raise
        raise UnisonoError(f"{error.report}\nWhat was reached is in {record.path}") from None
    return record.finish(found)


def _as_rank(recipe: Recipe, placement: Placement) -> dict[str, Any] | None:
    with connect(placement, recipe.transport, DEFAULT_TIMEOUT_S) as comm:
        recipe = replace(recipe, ranks=comm.size)
        try:
            check_layout(comm, recipe)
            job = prepare(recipe, load_once(comm, lambda: load_data(recipe)))
        except UserError:
            if comm.rank == 0:
                raise
            sys.exit(2)  # the same mistake on every rank: the first one says it
        record = tell_all(comm, lambda: Recorder(job, comm.transport))
        world = World(comm, record.add if record is not None else lambda value: None)
        # Only the first rank writes, so only there the file's place is known.
        try:
            found = train_rank(world, job, record.weights if record is not None else None)
        except UnisonoError as error:
            if record is not None:
                record.fail(str(error))
            raise
        return record.finish(found) if record is not None else None


def check_layout(comm: Communicator, recipe: Recipe) -> None:
    """Refuses the shared arena where ranks are on several nodes; on all of them."""
    nodes = len(np.unique(comm.all_gather(np.array([node_colour(comm)]))))
    if nodes > 1 and recipe.allreduce == "arena":
        raise UserError(
            f"--allreduce arena spans one node, and these {comm.size} ranks are on {nodes}",
            hint="use --allreduce native, or ring",
        )


def tell_all(comm: Communicator, make: Callable[[], "Recorder"]) -> "Recorder | None":
    """What `make` gives on rank 0, None elsewhere; if it fails there, everybody leaves."""
    failure = made = None
    if comm.rank == 0:
        try:
            made = make()
        except UnisonoError as error:
            failure = error
    failed = np.array([int(failure is not None)])
    comm.broadcast(failed)
    if failure is not None:
        raise failure
    if failed[0]:
        sys.exit(2)  # rank 0 says why
    return made


@final
class Recorder:
    """Writes a run down and shows it, epoch by epoch."""

    def __init__(self, job: Job, transport: str) -> None:
        self._begun = time.perf_counter()
        self._job, self._transport = job, transport
        self._directory = RunDirectory.make(job.recipe.out, job.recipe)
        self._parameters = list(job.model().layout.names)
        self.path, self.weights = self._directory.path, self._directory.weights
        print(opening(job, transport, usable_cores()), flush=True)

    def add(self, record: dict[str, Any]) -> None:
        self._directory.add(record, self._parameters)
        if self._job.recipe.log_ranks:
            print(rank_lines(record, self._parameters), flush=True)
        print(epoch_line(record["metrics"], self._job.recipe.epochs), flush=True)

    def fail(self, report: str) -> None:
        self._directory.finish(self._facts() | {"status": "failed", "error": report})

    def finish(self, found: dict[str, Any]) -> dict[str, Any]:
        summary = self._facts() | found | {"status": "finished", "wall_s": time.perf_counter() - self._begun}
        summary["sync_s"] = found["wait_s"] + found["update_s"]
        summary["samples_per_s"] = found["samples"] / found["train_s"]
        self._directory.finish(summary)
        plot_loss(self.path)
        print(verdict(summary, str(self.path), usable_cores()), flush=True)
        return summary

    def _facts(self) -> dict[str, Any]:
        recipe = self._job.recipe
        return {
            "ranks": recipe.ranks, "nodes": 1, "shards": recipe.shards, "strategy": "sync",
            "allreduce": recipe.allreduce, "transport": self._transport, "engine": "numpy", "precision": "fp32",
            "model": recipe.model, "data": recipe.data, "global_batch": self._job.plan.global_batch,
            "version": __version__, "machine": machine(), "takeovers": 0, "restarts": 0, "resumed_from": None,
            "energy_j": None, "energy_source": None,
        }  # fmt: skip
