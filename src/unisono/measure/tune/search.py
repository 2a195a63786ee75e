"""Tuning: finds the setting of a recipe that is fastest on this machine, or needs the least energy, in a bounded time.

The one idea: a candidate is measured by some seconds of its own steps (`worker.py`), more of them the closer it is to
the best (`halving.py`), each trial in a process of its own and a line in the study's records as soon as it is over.

    outcome = tune(records, candidates_of(recipe, options, cores), TrialOptions(options, limit_bytes), say)

Memory: before a trial what it will take is foretold from trials with fewer ranks, and one that would take more than the
limit is a row with that reason; the kernel holds each rank to its share of the limit.

The options of `unisono tune` beside those of a recipe, each defined once: the command line reads them here.
"""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from unisono.energy.resource_usage import BackgroundLoad
from unisono.environment.os_environ import child_environment
from unisono.errors import CommTimeout, UserError, unknown_name, with_hint
from unisono.launch.launcher_commands import python
from unisono.measure.tune.halving import HalvingResult, halve
from unisono.messages.exchanger_orders import Failed, Succeeded
from unisono.messages.packing import unpack
from unisono.resources import readable_bytes
from unisono.study.cell_process import FAILED, FINISHED, reason_of
from unisono.study.cells import Cell, values_of
from unisono.study.study_directory import Records
from unisono.supervise.children import Subprocess

OBJECTIVES = ("throughput", "energy")


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What to try, for what, for how long."""

    objective: str = "throughput"
    """throughput (most samples per second) or energy (fewest joules per sample)."""

    ranks: str = "auto"
    """Numbers of ranks to try, such as 1,2,4; auto: 1, 2, 4 ... and as many as there are cores."""

    threads: str = "auto"
    """Threads of each rank to try; auto: 1, 2, 4 ... as far as ranks x threads do not exceed the cores. They change the
    bits of the result."""

    shards: str = ""
    """Numbers of shards to try, or ranks: a shard a rank. Empty: the recipe's. They change the bits of the result."""

    batch_sizes: str = ""
    """Global batches to try, with the learning rate scaled accordingly; empty: the recipe's. They change the result.
    With --target-accuracy the best setting of each is trained until it reaches that, and the fastest one counts."""

    seconds: float = 150.0
    """When this is over no trial is begun; the best one so far counts."""

    memory: str = ""
    """The most that ranks may take together, such as 4GiB; empty: four fifths of what is free."""

    retry: bool = False
    """Try again what failed when this was tuned before. What failed for want of time or memory is tried again by itself
    once there is more of it (--seconds, --memory)."""

    out: str = ""
    """The study's directory; one under studies/ if empty. The same command finds it again, and goes on."""

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise unknown_name("--objective", self.objective, OBJECTIVES)
        if not 0 < self.seconds < float("inf"):
            raise UserError(f"--seconds is {self.seconds}", hint="give a number above 0")


PATIENCE_S = 120.0
"""What a trial may take beside its steps: imports, data, starting ranks."""
TRIAL, TRAINING = "trial", "training"
"""What a record is of: some seconds of steps, or a run to an accuracy (`time_to_accuracy.py`). They share no number."""

Record = dict[str, Any]


@final
@dataclass(frozen=True)
class TrialOptions:
    """What binds a tuning."""

    options: TuneOptions
    limit_bytes: int


def tune(
    records: Records, cells: Sequence[Cell], terms: TrialOptions, say: Callable[[Record], None] = lambda record: None
) -> HalvingResult[str]:
    """Measures the candidates; candidates are known by their digests in the outcome."""
    by_digest = {cell.digest: cell for cell in cells}
    tried = [one for one in records.all if one["what"] == TRIAL]
    deadline = time.monotonic() + terms.options.seconds - sum(record["elapsed_s"] for record in tried)
    there = [one for one in tried if not _may_go_now(one, terms)]

    def find(digest: str, seconds: float) -> Record | None:
        return next((one for one in there if one["digest"] == digest and one["seconds"] == seconds), None)

    def measure(digest: str, seconds: float) -> float | None:
        if earlier := find(digest, seconds):
            there.remove(earlier)
            return score_of(earlier, terms.options.objective)
        record = _tried(by_digest[digest], seconds, terms.limit_bytes, tried)
        tried.append(record)
        records.add(record)
        say(record)
        return score_of(record, terms.options.objective)

    def time_for(digest: str, seconds: float) -> bool:
        usual = max((one["elapsed_s"] - one["seconds"] for one in tried), default=0.0)
        enough = time.monotonic() + max(0.0, usual) + seconds < deadline
        return enough or not tried or find(digest, seconds) is not None

    return halve(list(by_digest), measure, time_for)


def _may_go_now(record: Record, terms: TrialOptions) -> bool:
    """Whether a trial that failed is worth another: its limit of memory was lower, or the user says so."""
    failed = record["status"] == FAILED
    return failed and (terms.options.retry or record.get("limit_bytes", terms.limit_bytes) < terms.limit_bytes)


def _tried(cell: Cell, seconds: float, limit_bytes: int, before: Sequence[Record]) -> Record:
    """A trial, or why there is none."""
    record = {"what": TRIAL, "cell": cell.name, "labels": dict(cell.labels), "digest": cell.digest, "seconds": seconds}
    begun, others = time.monotonic(), BackgroundLoad()
    expected = foretold_bytes(cell, before)
    if expected > limit_bytes:
        told = f"it would take about {readable_bytes(expected)} of memory, and {readable_bytes(limit_bytes)}"
        record |= {"status": FAILED, "reason": f"{told} is the limit (--memory)", "exit_code": None}
    else:
        record |= run_trial(cell, seconds, limit_bytes) | {"others_cores": others.cores()}
    if record["status"] == FAILED and record["exit_code"] != 2:
        record["limit_bytes"] = limit_bytes  # which may be why: memory has no error of its own in every library
    return record | {"elapsed_s": time.monotonic() - begun}


def run_trial(cell: Cell, seconds: float, limit_bytes: int) -> Record:
    """Some seconds of steps in a process of its own; what became of it."""
    spec = json.dumps({"recipe": values_of(cell.recipe), "seconds": seconds, "limit_bytes": limit_bytes})
    command = python("-m", "unisono.measure.tune.worker", spec)
    found: Succeeded | Failed | None = None
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise:
        try:
            with Subprocess(command, child_environment(threads=None), stderr=noise.fileno()) as process:
                for line in process.lines(silence_s=PATIENCE_S + 4 * seconds):
                    found = unpack(line.encode())
                code = process.wait()
        except CommTimeout as error:
            return {"status": FAILED, "reason": error.summary, "exit_code": None}
        noise.seek(0)
        said = noise.read()
    if isinstance(found, Failed):
        return {"status": FAILED, "reason": reason_of(_told(found), 1), "exit_code": found.exit_code}
    if code or found is None:
        return {"status": FAILED, "reason": reason_of(said, code), "exit_code": code}
    return {"status": FINISHED, "reason": "", "exit_code": 0, **found.value}


def _told(failed: Failed) -> str:
    """An error of ours, as a process would print it; of one that has a traceback, that."""
    return failed.message if failed.traceback else f"unisono: {with_hint(failed.message, failed.hint)}"


def score_of(record: Record, objective: str) -> float | None:
    """Higher is better; None if it failed."""
    if record["status"] != FINISHED:
        return None
    if objective == "throughput":
        return float(record["samples_per_s"])
    each = record["joules_per_sample"]
    return 1.0 / each if each else None


def foretold_bytes(cell: Cell, records: Sequence[Record]) -> float:
    """What a candidate will take, by the largest trial of those with as many ranks or fewer; 0: not known.

    Memory that ranks have for themselves grows with them and with the batch; what they share does not, so this is at
    most too much.
    """
    most = 0.0
    for record in records:
        if record["status"] == FINISHED and int(record["labels"]["ranks"]) <= cell.recipe.ranks.count:
            ranks = cell.recipe.ranks.count / int(record["labels"]["ranks"])
            before = int(record["labels"].get("batch_size", 0))
            batch = max(1.0, int(cell.labels["batch_size"]) / before) if before else 1.0
            most = max(most, record["memory_bytes"] * ranks * batch)
    return most
