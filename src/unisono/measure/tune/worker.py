"""What a trial of `unisono tune` runs: some seconds of training with one setting, in a process of its own.

    python -m unisono.measure.tune.worker '{"recipe": {...}, "seconds": 2.0, "limit_bytes": 4000000000}'

The one idea: steps are real, everything around them is left out. Prints one JSON record: samples_per_s, step_s (the
median), joules, energy_source, memory_bytes, or an error with its exit code. Nothing else comes that way: what the
user's own code prints goes to standard error.

Nothing can take the machine down: the memory of each rank is limited by the kernel (RLIMIT_DATA), so that what would be
too much is an error of that rank.
"""

import json
import os
import resource
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from unisono.energy.meter import Meter, find_counters
from unisono.energy.resource_usage import cpu_s
from unisono.errors import UnisonoError
from unisono.launch.local import run
from unisono.measure.step_timing import Steps, with_steps
from unisono.messages.exchanger_orders import Failed, Succeeded
from unisono.messages.packing import pack
from unisono.recipe.reading import from_values
from unisono.resources import pss_bytes
from unisono.training.job import Job, prepare
from unisono.world import World

WARM_UP, LEAST, MOST = 3, 4, 20_000
"""Steps that do not count; the fewest and the most that do."""
PIECE_S, UNDISTURBED = 0.002, 0.1
"""Steps are timed in pieces of about so many seconds, what lies between steps included, and speed is that of the tenth
of the pieces that were fastest: the others may have been disturbed by other programs, all the more on several ranks."""


def measure_rank(world: World, job: Job, seconds: float, limit_bytes: int) -> dict[str, float | None]:
    """One rank of a trial: as many steps as fit into `seconds`."""
    limit_memory(limit_bytes // world.size)
    quiet = np.errstate(all="ignore")  # as around the trainer's loop
    model = job.model_of(world.rank)
    with (
        threadpool_limits(job.recipe.ranks.threads, user_api="blas"),
        quiet,
        job.strategy(world.comm, model) as strategy,
    ):
        steps = Steps(world, strategy, job)
        told = np.array([median(steps.take(WARM_UP))])
        world.comm.broadcast(told)
        piece = max(1, round(PIECE_S / told[0]))
        count = int(min(MOST, max(LEAST, seconds / told[0]))) // piece + 1
        meter = Meter(find_counters(), watts_per_core=0.0) if world.rank == 0 else None
        used_s = cpu_s(descendants=False)
        times = [_timed(steps, piece) for _ in range(count)]
        world.comm.barrier()
        return {
            "samples_per_s": job.plan.global_batch / float(np.quantile(times, UNDISTURBED)),
            "samples": count * piece * job.plan.global_batch,
            "step_s": median(times),
            "counted_j": None if meter is None else meter.read(0.0).joules,
            "cpu_s": cpu_s(descendants=False) - used_s,
            "memory_bytes": pss_bytes(),
        }


def _timed(steps: Steps, count: int) -> float:
    """Seconds a step."""
    begun = perf_counter()
    steps.take(count)
    return (perf_counter() - begun) / count


def limit_memory(more_bytes: int) -> None:
    """This process may have so much more private memory than now."""
    now = int(Path("/proc/self/statm").read_text("ascii").split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = now + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


def trial(spec: dict[str, Any]) -> dict[str, Any]:
    """Prepares, starts the ranks, adds up what they found."""
    recipe = from_values(spec["recipe"], "the trial")
    job = prepare(recipe.with_options(snapshot_every="", resume="", allow_change="", out="", target_accuracy=0.0))
    job = with_steps(job, 2 * MOST + WARM_UP)
    found = run(lambda world: measure_rank(world, job, spec["seconds"], spec["limit_bytes"]), recipe.ranks.count)
    first = found[0]
    counted, estimated = first["counted_j"], sum(one["cpu_s"] for one in found) * recipe.output.watts_per_core
    joules = estimated if counted is None else counted
    return {
        "samples_per_s": first["samples_per_s"],
        "step_s": first["step_s"],
        "joules_per_sample": joules / first["samples"] if joules else None,
        "energy_source": "rapl" if counted is not None else "estimate" if joules else "none",
        "memory_bytes": int(sum(one["memory_bytes"] for one in found)),
        "global_batch": job.plan.global_batch,
        "shards": job.recipe.ranks.shards,
    }


def main() -> None:
    """The entry point."""
    answer = os.dup(1)
    os.dup2(2, 1)  # for ranks as well, which inherit it
    try:
        found: Succeeded | Failed = Succeeded(trial(json.loads(sys.argv[1])))
    except UnisonoError as error:
        found = Failed.of(error)
    os.write(answer, pack(found) + b"\n")


if __name__ == "__main__":
    main()
