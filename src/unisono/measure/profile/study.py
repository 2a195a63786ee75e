"""A profile: where the time of a recipe's steps goes, measured on its own ranks.

The one idea: what is profiled is the recipe itself, on as many ranks as it has; this side checks, starts them and puts
their records together, and never computes.

    record = measure(plan(load("r4", {}), ProfileOptions(batches=20)), ProfileOptions(batches=20))

Limits: one machine, ranks that are started here, strategy `sync` with any all-reduce.
"""

from typing import Any

from unisono.data.dataset import Dataset
from unisono.energy.resource_usage import BackgroundLoad
from unisono.environment.os_environ import detect
from unisono.errors import UserError, unknown_name
from unisono.launch.local import run
from unisono.measure.options import SORTS, ProfileOptions, choices
from unisono.measure.profile.rank_measurement import measure_rank, steps_of
from unisono.measure.step_timing import with_steps
from unisono.models.activations import ACTIVATIONS
from unisono.recipe import Recipe
from unisono.resources import machine
from unisono.strategies.registry import of
from unisono.training.fingerprint import libraries_of
from unisono.training.job import Job, prepare

PARTS = 4
"""Rounds of batches, at most: unwatched, phases, modules, operators."""


def plan(recipe: Recipe, options: ProfileOptions) -> list[Job]:
    """What is to be profiled, one job after the other; a `UserError` for what cannot be."""
    _check(recipe, options)
    if not options.activations:
        return [_job(recipe, options)]
    names = choices(options.activations, list(ACTIVATIONS), "activation")
    jobs: list[Job] = []
    for name in names:
        dataset = jobs[0].dataset if jobs else None
        jobs.append(_job(recipe.with_options(activation=name), options, dataset))
    return jobs


def _check(recipe: Recipe, options: ProfileOptions) -> None:
    if (size := detect().size) > 1:
        raise UserError(
            f"profile was started as {size} ranks, and starts its own", hint="run it once: unisono profile --ranks 2"
        )
    if options.batches < 1 or options.top < 1:
        name, value = ("--batches", options.batches) if options.batches < 1 else ("--top", options.top)
        raise UserError(f"{name} is {value}", hint="give 1 or more")
    if options.sort not in SORTS:
        raise unknown_name("--sort", options.sort, SORTS)
    if not of(recipe).supports.profile:
        raise UserError(
            f"profile with --strategy {recipe.strategy.name}: only steps of sync are looked into",
            hint="use --strategy sync: modules and operators take the same time in all of them",
        )
    if recipe.strategy.transport not in ("auto", "shm"):
        raise UserError(f"profile with --transport {recipe.strategy.transport}", hint="leave --transport out")
    if recipe.model.sync_batchnorm:
        raise UserError(
            "profile with --sync-batchnorm: shards are computed in turns there, not one after the other",
            hint="leave --sync-batchnorm out",
        )


def _job(recipe: Recipe, options: ProfileOptions, dataset: Dataset | None = None) -> Job:
    job = prepare(recipe.with_options(snapshot_every="", resume="", allow_change="", out=""), dataset)
    return with_steps(job, steps_of(options.batches, PARTS))


def measure(job: Job, options: ProfileOptions) -> dict[str, Any]:
    """Profiles one job; the record."""
    others = BackgroundLoad()
    found = run(lambda world: measure_rank(world, job, options), job.recipe.ranks.count)
    recipe, first = job.recipe, found[0]
    record: dict[str, Any] = {
        "model": recipe.model.name, "activation": recipe.model.activation, "data": recipe.data.name,
        "engine": recipe.model.engine,
        "precision": recipe.model.precision, "ranks": recipe.ranks.count, "shards": recipe.ranks.shards,
        "threads": recipe.ranks.threads,
        "global_batch": job.plan.global_batch, "batches": options.batches, "allreduce": recipe.strategy.allreduce,
        "machine": machine(*libraries_of([recipe])), "others_cores": others.cores(),
    }  # fmt: skip
    record |= {
        "step_s": first["plain_s"],
        "overhead": first["overhead"],
        "forward_s": first["forward_s"],
        "modules_forward_s": first["modules_forward_s"],
        "phases": [{"rank": rank, **one["phases"]} for rank, one in enumerate(found)],
    }
    for name in ("modules", "operators"):
        record[name] = [{"rank": rank, **row} for rank, one in enumerate(found) for row in one[name]]
    record["spans"] = [one["spans"] for one in found]
    return record
