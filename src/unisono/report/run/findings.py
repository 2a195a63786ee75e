"""The totals of a finished run, counted again from its directory, and what was found in them.

    found = findings_of(unisono.load("runs/mine"))         # the sentences of the verdict; the last one: what to try

The one idea: what the terminal said and what a report says come from the same code (`aggregate.py`,
`outcome_and_advice.py`), fed with records from memory or from the disk.

Of a run that was resumed both count from there on: the epochs before may have been timed on other ranks.

Limits: what synchronised batch norm took is not on the disk. Contributions are weighted by the sizes of parameters as
far as the weights are there.
"""

from typing import Any

import numpy as np

from unisono.claimed_shapes import count_elements
from unisono.data.shards import ShardPlan
from unisono.errors import UserError
from unisono.files import open_file
from unisono.messages.rank_reports import EpochRecord
from unisono.report.run.aggregate import TIMES, RunTotals, sample_shares
from unisono.report.run.files import is_number
from unisono.report.run.load import CONTRIBUTION, MOST_RANKS, Run
from unisono.report.run.outcome_and_advice import findings
from unisono.report.run.staleness import Staleness
from unisono.safetensors_file import read_header
from unisono.strategies.local.sync_schedule import DEFAULT_EVERY, SyncSchedule
from unisono.strategies.registry import find

NEEDED = (
    "ranks", "shards", "threads", "global_batch", "epochs", "train_s", "wall_s", "samples_per_s", "first_sync_s",
    "compute_s", "data_s", "wait_s", "update_s", "sync_s", "train_loss",
)  # fmt: skip
"""Numbers without which a summary is no summary."""
MOST_SHARDS = 1 << 16
"""In a step, or in all steps that replicas walk alone; more are a damaged file, or not worth counting."""


def findings_of(run: Run) -> list[str]:
    """The sentences of the verdict; none if the run did not finish, or lacks what they are made of."""
    summary, totals = run.summary, totals_of(run)
    if summary.get("status") != "finished" or totals is None:
        return []
    if not all(is_number(summary.get(name)) for name in NEEDED):
        return []
    if masters_of(run) and not _tells_staleness(summary):
        return []
    words = {"stopped_early": "", "allreduce": "", "batch_size_per_rank": 0, "shard_price": None} | summary
    machine = summary.get("machine")
    cores = machine.get("cores") if isinstance(machine, dict) else None
    try:
        lines = Staleness.of(summary).lines(summary) if masters_of(run) else None
        return findings(words, totals, cores if is_number(cores) and cores else summary["ranks"], lines)
    except (TypeError, ValueError, LookupError, ArithmeticError):
        return []  # the summary holds other things than unisono writes


def _tells_staleness(summary: dict[str, Any]) -> bool:
    counts = [summary.get(name) for name in ("masters", "workers")]
    plausible = all(type(count) is int and 0 <= count <= MOST_RANKS for count in counts)
    return plausible and isinstance(summary.get("staleness_counts"), list)


def totals_of(run: Run) -> RunTotals | None:
    """The timed epochs of which the ranks' records are whole; None if there are none."""
    plan, size = plan_of(run), last_size(run)
    names = ("samples", "last_steps", *TIMES)
    numbers = np.stack([run.by_rank(name)[:, :size] for name in names], axis=-1)  # (epoch, rank, name)
    shares = {name: found[:, :size] for name, found in contributions_of(run).items()}
    whole = np.isfinite(numbers).all(axis=(1, 2)) & (run.numbers("epoch") > untimed_of(run))
    if plan is None or not whole.any():
        return None
    totals = RunTotals([sizes_of(run)[name] for name in shares], sample_shares_of(run, size))
    stacked = np.nan_to_num(np.stack([*shares.values()], axis=-1)) if shares else np.zeros((len(whole), size, 0))
    columns = {name: values.tolist() for name, values in run.metrics.items()}
    hosts, epoch_s = hosts_of(run)[:size], np.nan_to_num(run.numbers("epoch_s")).tolist()
    for row in np.flatnonzero(whole):
        ranks = [
            dict(zip(names, values, strict=True)) | {"host": host}
            for values, host in zip(numbers[row].tolist(), hosts, strict=True)
        ]
        metrics = {name: values[row] for name, values in columns.items()} | {"epoch_s": epoch_s[row]}
        meetings = meetings_of(run, plan, int(row) + 1)
        totals.add(EpochRecord(metrics, plan.steps_per_epoch, ranks, stacked[row][:, :, None], meetings))
    return totals


def last_size(run: Run) -> int:
    """Ranks of the last epoch that has any: fewer than `run.size` if the run was resumed on fewer."""
    there = np.isfinite(run.by_rank("rank"))  # (epoch, rank)
    if not there.any():
        return run.size
    return int(np.flatnonzero(there[there.any(axis=1)][-1])[-1]) + 1


def untimed_of(run: Run) -> int:
    """The last epoch that the summary's times and energy do not count: 0, unless the run was resumed."""
    if not run.summary.get("resumed_from") or type(run.summary.get("epochs_timed")) is not int:
        return 0
    return max(0, _whole(run, "epochs") - int(run.summary["epochs_timed"]))


def plan_of(run: Run) -> ShardPlan | None:
    """How an epoch was cut into steps and shards, from what the ranks counted; None if that is not known."""
    samples = np.nansum(run.by_rank("samples"), axis=1).max(initial=0.0)
    batch = _whole(run, "global_batch")
    if not batch:
        batch = _whole(run, "batch_size_per_rank") * run.size or _whole(run, "batch_size") or int(samples)
    shards = _whole(run, "shards")
    if masters_of(run):  # an epoch is one round, in which each worker has its own pace
        batch, shards = int(min(samples, 2**53)), 1
    if not (0 < samples < 2**53 and batch > 0 and 0 < shards <= MOST_SHARDS):
        return None
    try:
        return ShardPlan(samples=int(samples), batch=batch, shards=shards, seed=0)
    except UserError:
        return None


def sample_shares_of(run: Run, ranks: int) -> list[float]:
    """Each rank's share of the samples whose contributions were looked at; even if it is not known."""
    plan, steps = plan_of(run), None
    if plan is None:
        return [1 / ranks] * ranks
    if _has_replicas(run) and plan.steps_per_epoch * plan.shards <= MOST_SHARDS:
        steps = SyncSchedule(plan, _whole(run, "sync_every") or DEFAULT_EVERY).span(1, plan.steps_per_epoch - 1)
    return sample_shares(plan, ranks, min(masters_of(run), ranks - 1), steps)


def meetings_of(run: Run, plan: ShardPlan, epoch: int) -> int:
    """How often ranks met in the steps of an epoch."""
    if not _has_replicas(run):
        return plan.steps_per_epoch
    return SyncSchedule(plan, _whole(run, "sync_every") or DEFAULT_EVERY, _whole(run, "local_after")).meetings(epoch)


def masters_of(run: Run) -> int:
    """Ranks of an asynchronous run that own parameters: the first ones; 0 for other runs."""
    masters, spec = _whole(run, "masters"), find(run.recipe.get("strategy"))
    return masters if spec is not None and spec.asynchronous and masters < run.size else 0


def _has_replicas(run: Run) -> bool:
    """Whether each shard had parameters of its own, averaged now and then."""
    spec = find(run.recipe.get("strategy"))
    return spec is not None and spec.shards_are_replicas


def contributions_of(run: Run) -> dict[str, np.ndarray]:
    """(epoch, rank) for each parameter, in the model's order."""
    return {name: run.by_rank(f"{CONTRIBUTION}{name}") for name in run.contributions}


def sizes_of(run: Run) -> dict[str, int]:
    """Elements of each parameter, as the weights say; 1 where they do not."""
    names, path = run.contributions, run.path / "weights.safetensors"
    try:
        with open_file(path, follow_links=False) as file:
            tensors = read_header(file).tensors
    except (OSError, ValueError):
        tensors = {}
    return {name: count_elements(tensors[name].shape) or 1 if name in tensors else 1 for name in names}


def hosts_of(run: Run) -> list[str]:
    """Where each rank ran last."""
    hosts = ["?"] * run.size
    if run.size and "host" in run.ranks:
        for rank, host in zip(run.ranks["rank"].tolist(), run.ranks["host"].tolist(), strict=True):
            if 0 <= rank < len(hosts):
                hosts[rank] = str(host)
    return hosts


def _whole(run: Run, name: str) -> int:
    """A whole number of the summary or the recipe; 0 if there is none."""
    values: list[Any] = [run.summary.get(name), run.recipe.get(name)]
    return next((value for value in values if type(value) is int and value > 0), 0)
