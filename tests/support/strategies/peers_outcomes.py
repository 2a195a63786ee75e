"""Trains recipes by strategy and number of ranks, and says what came out.

    runs = {"name": {"strategy": "ddp", "ranks": 2, "model": "mlp:8"}}
    unisono.run(lambda world: outcomes(runs, folder), 1, start="fork")    # in a process that need not import torch

Forks, so nobody else's threads may be here. `"fault": "factor"` in a run doubles the weight of every sample;
"elsewhere" trains a copy of the module, as on a device with memory of its own.
"""

from pathlib import Path
from typing import Any

import unisono
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.strategies.base import Batch
from unisono.strategies.external import module_placement
from unisono.strategies.external.external_step import ExternalStep
from unisono.training.job import Job, prepare
from unisono.training.trainer import train
from unisono.world import World

learn = ExternalStep._learn


def doubled(peer: ExternalStep, harness: Any, x: Any, y: Any, batch: Batch, row: Any) -> Any:
    return learn(peer, harness, x, y, batch._replace(samples=batch.samples / 2), row)


def outcome(job: Job, weights: Path, fault: str) -> dict[str, Any]:
    records: list[Any] = []

    def work(world: World) -> dict[str, Any]:
        if fault == "factor":
            ExternalStep._learn = doubled
        elif fault == "elsewhere":
            module_placement.on_cpu = lambda device: False
            init = module_placement.DeviceCopy.__init__
            module_placement.DeviceCopy.__init__ = lambda *given: (init(*given), world.report({"elsewhere": True}))[0]
        return train(world, job, weights)

    job.spec.warm_up()
    ends = unisono.run(
        work, job.recipe.ranks.count, start="fork", timeout_s=60, on_report=lambda rank, value: records.append(value)
    )
    epochs = [record for record in records if isinstance(record, EpochRecord)]
    shares = epochs[-1].shares
    return {
        "ends": ends,
        "metrics": [record.metrics for record in epochs],
        "shares": shares,
        "ranks": epochs[-1].ranks,
        "elsewhere": sum(record == {"elsewhere": True} for record in records),
    }


def outcomes(runs: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for name, options in runs.items():
        recipe = Recipe.from_options(**{key: value for key, value in options.items() if key != "fault"})
        found[name] = outcome(prepare(recipe), folder / f"{name}.safetensors", options.get("fault", ""))
    return found
