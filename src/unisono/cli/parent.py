"""A run whose ranks this process starts, on this machine: under a supervisor, or without take-over.

    as_parent(Recipe(ranks=4), restarts=0, beside=None)

The one idea: the parent writes the run directory and speaks; the ranks compute and report to it.

Limits: take-over and snapshots need the arena; without it (gloo, the strategies of others) a death ends the run.
"""

import os
import platform
import sys
from contextlib import ExitStack
from typing import Any

from unisono.cli.beginning import check_unused, go_on, refuse_faults, restored
from unisono.cli.ending import fail_of
from unisono.cli.recorder import Recorder
from unisono.cli.trusting import confirm
from unisono.cli.watching import live_page
from unisono.errors import RankFailed, UserError
from unisono.launch.connect import connect_gloo, require
from unisono.launch.local import run
from unisono.launch.signals import finish_undisturbed, heeding, ignore_requests
from unisono.limits import crowd_note
from unisono.messages.reports import RankProcess, StoppedAt
from unisono.recipe import Recipe
from unisono.strategies.peers import check_gpus, devices_of, transport_of, warm_up
from unisono.strategies.wire import wire_notes
from unisono.terminal import print
from unisono.train.enough import check_machine
from unisono.train.job import Job, prepare
from unisono.train.precision_trial import precision_notes
from unisono.train.resuming import find_snapshot
from unisono.train.team import Halted, Places, Team
from unisono.train.trainer import train as train_rank
from unisono.trust import ANY, Trust
from unisono.world import World


def as_parent(recipe: Recipe, restarts: int, beside: ExitStack | None, trust: Trust = ANY) -> dict[str, Any] | None:
    """The run, to the end; its summary. restarts: by a batch system. beside: for a live page. trust: which of its code
    may run."""
    if recipe.transport == "mpi":
        raise UserError(
            "--transport mpi, but no MPI started this process",
            hint=f"mpirun -n {recipe.ranks} unisono train --transport mpi ...; or leave --transport out",
        )
    if recipe.transport == "nccl":
        raise UserError(
            "--transport nccl, but no torchrun started this process",
            hint=f"torchrun --nproc-per-node {recipe.ranks} -m unisono train --transport nccl ...; or use gloo",
        )
    check_machine(recipe)
    if note := crowd_note(recipe.ranks, recipe.threads):
        print(note, file=sys.stderr, flush=True)
    transport = "shm" if recipe.transport == "auto" else recipe.transport
    require(transport)
    again = go_on(recipe, restarts)
    if again.finished:
        return None
    check_unused(again.recipe)
    snapshot = find_snapshot(again.recipe)
    recipe = restored(again.recipe, snapshot)
    confirm(trust, recipe)
    job = prepare(recipe)
    check_gpus(job.recipe)
    devices = devices_of(job.recipe, range(job.recipe.ranks))
    watched = job.recipe.allreduce == "arena" and transport == "shm"
    if not watched:
        refuse_faults(job.recipe)
    team = Team(job, Places()) if watched else None
    if team is not None and snapshot is not None:
        team.resume(snapshot)  # before anything in the run directory is touched
    try:
        moves = transport_of(job.recipe, transport)
        with Recorder(job, moves, [platform.node()], snapshot, devices, anew=again.anew) as record:
            if beside is not None:
                beside.enter_context(live_page(record.path))
            record.say([*job.notes, *precision_notes(job), *wire_notes(job.recipe, 1)])
            record.watch.meter.measure_idle()
            if team is not None:
                return _supervise(team, record)
            return _run_without_take_over(job, record, transport)
    except RankFailed as error:
        raise fail_of(error, record) from None


def _supervise(team: Team, record: Recorder) -> dict[str, Any]:
    team.places = Places(record.weights, record.path / "snapshots", record.log)
    team.on_finished = finish_undisturbed
    with heeding(lambda: None, team.signals):  # beyond the run's own: no echo falls between it and the end
        try:
            outcome = team.train(lambda rank, value: record.add(value), record.add_event, on_tick=record.watch.tick)
        except Halted:
            ignore_requests()
            raise
    found: dict[str, Any] = next(result for result in outcome.results.values() if result)
    return record.finish(found | {"takeovers": outcome.takeovers, "restarts": outcome.restarts})


def _run_without_take_over(job: Job, record: Recorder, transport: str) -> dict[str, Any]:
    def work(world: World) -> dict[str, Any] | StoppedAt:
        world.report(RankProcess(world.rank, os.getpid()))
        if transport == "shm":
            return train_rank(world, job, record.weights)
        with World(connect_gloo(world.comm), world.report) as over_gloo:
            return train_rank(over_gloo, job, record.weights)

    warm_up(job.recipe)
    found = run(work, job.recipe.ranks, on_report=lambda rank, value: record.add(value))[0]
    finish_undisturbed()
    return record.finish(found)
