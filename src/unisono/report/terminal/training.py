"""What `unisono train` says while it runs: the opening, a line an epoch, lines of ranks. Text only.

    print(opening(job, Setting("NumPy", "shm", cores=2, hosts=["here"]))); print(epoch_line(record.metrics, epochs))

The one idea: what decides the result and the time stands in the first two lines, so that a saved log says it.
`report/run/outcome_and_advice.py` has the last word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from unisono.messages.events import (
    NOBODY,
    OTHERS,
    Event,
    RankDied,
    RankJoined,
    ReplacementFailed,
    SnapshotFailed,
    SnapshotWritten,
    StopRequested,
)
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.report.run.outcome_and_advice import enough_ranks, live_shards, plural, readable_loss, readable_s
from unisono.report.run.staleness import opening_line
from unisono.training.job import Job


@final
@dataclass(frozen=True)
class Setting:
    """What a run happens on, as far as the recipe does not say it."""

    engine: str
    transport: str
    cores: int
    """The cores of this host."""
    hosts: Sequence[str] | None
    """Of the ranks, each once or once a rank; None: not known yet."""
    devices: Sequence[str] = ()
    """Of the ranks, in their order; none where there is no choice."""
    dependences: Sequence[str] = ()
    """What a shard's bits depend on here and should not: see `training/bits_and_speed_trials.py`."""


def opening(job: Job, setting: Setting) -> str:
    """What will be trained, by whom, and what to know about it."""
    recipe, plan = job.recipe, job.plan
    shared = job.spec.supports.any_ranks
    size = plan.batch_samples(0)  # not plan.global_batch: there may be fewer samples than that
    bits = f"same bits on {_count(min(recipe.ranks.shards, size))}"
    if not shared or setting.dependences:
        bits = "bits may differ on other numbers of ranks" if shared else "other bits on other numbers of ranks"
    empty = f", {recipe.ranks.shards - size} of them empty (a batch has {size})" if recipe.ranks.shards > size else ""
    batch = f"global batch {plan.global_batch}" if size == plan.global_batch else f"the batch is all {size:,} samples"
    where = f" on {_places(setting.hosts)}" if setting.hosts else ""
    lines = [
        f"unisono train: {recipe.model.name} on {recipe.data.name}, {plan.samples:,} samples; {setting.engine} engine, "
        f"{_way(job, setting)}, {plural(recipe.ranks.count, 'rank')} x "
        f"{plural(recipe.ranks.threads, 'thread')}{where}, {plural(setting.cores, 'core')}",
        f"{plural(recipe.ranks.shards, 'shard')}{empty}: {bits}; {batch}, {plural(plan.steps_per_epoch, 'step')} an "
        "epoch",
    ]
    if setting.dependences:
        lines.append(
            f"Warning: on this processor the bits of a shard depend on {', and on '.join(setting.dependences)}.\n"
            "HINT: unisono doctor tells more; another version of NumPy or torch may have other kernels"
        )
    if job.spec.asynchronous:
        return "\n".join([lines[0], opening_line(recipe, job.updates)])
    if job.sync_schedule is not None:
        lines.append(_replicas(recipe))
    if recipe.learning.batch_size_per_rank and recipe.ranks.count > 1 and recipe.learning.scale_lr == "none":
        lines.append(
            "Note: the global batch, and with it the result, depends on the ranks; --scale-lr linear may help."
        )
    live = live_shards(plan.global_batch, recipe.ranks.shards)
    if plan.live(0) < live:  # shards are cut for the batch that was asked for
        lines.append(
            f"Note: a batch of {plan.global_batch} in {recipe.ranks.shards} shards has {plan.shard_size} samples a "
            "shard, so "
            f"that {plan.live(0)} of them {'holds' if plan.live(0) == 1 else 'hold'} all; --batch-size full fills all."
        )
    elif live % recipe.ranks.count:
        enough = enough_ranks(live, recipe.ranks.count)
        cut = (
            ""
            if live == recipe.ranks.shards
            else f"a batch of {plan.global_batch} in {recipe.ranks.shards} shards fills {live}, and "
        )
        told = f"Note: {cut}{plural(live, 'shard')} do not divide among {recipe.ranks.count} ranks: some will wait"
        lines.append(
            f"{told}; {plural(enough, 'rank')} would be as fast." if enough < recipe.ranks.count else f"{told}."
        )
    return "\n".join(lines)


def _way(job: Job, setting: Setting) -> str:
    """What sums gradients, over what; on which devices, where there is a choice."""
    if job.spec.asynchronous:
        return f"{setting.transport} {'boxes' if setting.transport == 'shm' else 'messages'}"
    if not job.spec.external:
        return f"{setting.transport} {job.recipe.strategy.allreduce}"
    devices = f", {_devices(setting.devices)}" if setting.devices else ""
    return f"{job.recipe.strategy.name} over {setting.transport}{devices}"


def _devices(names: Sequence[str]) -> str:
    """Of each rank."""
    if len(set(names)) == 1:
        return f"{names[0]} for every rank"
    return f"ranks 0-{len(names) - 1} on {', '.join(names)}"


def _replicas(recipe: Recipe) -> str:
    """How often they are averaged."""
    often = f"after every {plural(int(recipe.strategy.sync_every), 'step')} and at the end of each epoch"
    if recipe.strategy.local_after:
        often += f"; up to epoch {recipe.strategy.local_after} after every step"
    return f"{plural(recipe.ranks.shards, 'replica')}, one a shard, averaged {often}"


def epoch_line(metrics: dict[str, Any], epochs: int) -> str:
    """One epoch; its columns stand below those of the others."""
    number = f"epoch {metrics['epoch']}/{epochs}".ljust(len(f"epoch {epochs}/{epochs}"))
    told = f"{number}  {readable_s(metrics['epoch_s']):>7}  {metrics['samples_per_s']:>9,.0f} samples/s"
    for part in ("train", "validation", "test"):
        if f"{part}_loss" in metrics:
            told += f"  {part} loss {readable_loss(metrics[f'{part}_loss'])}"
            if metrics[f"{part}_accuracy"] is not None:  # 0 is an accuracy; None: there are no classes
                told += f" accuracy {metrics[f'{part}_accuracy']:.4f}"
    return told


def rank_lines(record: EpochRecord, parameters: list[str]) -> str:
    """What each rank did in an epoch, in their order."""
    lines = []
    for rank, (entry, shares) in enumerate(zip(record.ranks, record.shares, strict=True)):
        told = [f"Epoch {record.metrics['epoch']}, rank {rank}:"]
        for name, (contribution, _, mean) in zip(parameters, shares, strict=True):
            told.append(f"mean grad {name} {mean:.6f}, {name} contribution {100 * contribution:.2f} %,")
        lines.append(" ".join(told) + f" sync time {entry['wait_s'] + entry['update_s']:.6f} s")
    return "\n".join(lines)


def _count(ranks: int) -> str:
    return f"1-{ranks} ranks" if ranks > 1 else "1 rank"


def _places(hosts: Sequence[str]) -> str:
    names = list(dict.fromkeys(hosts))
    return "1 host" if len(names) == 1 else f"{len(names)} hosts ({', '.join(names)})"


def event_line(event: Event) -> str:
    """What to say of a death, a join or a snapshot; nothing if it needs no word."""
    match event:
        case RankDied():
            return f"rank {event.rank} {event.cause}; {_heirs(event)}"
        case ReplacementFailed(rank, cause, again):
            return f"a replacement of rank {rank} {cause}" + ("" if again else ": no more are tried")
        case RankJoined():
            return f"rank {event.rank} is back: {plural(event.ranks, 'rank')}"
        case SnapshotFailed():
            return f"a snapshot could not be written: {event.cause}"
        case SnapshotWritten(_, path, cause) if cause:
            return f"{cause}; the snapshot is in {path}: make room and move it, or go on from there"
        case StopRequested():
            return (
                "asked to end: it will, after this step, with a snapshot; asked once more it ends at once, without one"
            )
    return ""


def _heirs(death: RankDied) -> str:
    """Who took over, and how fast; else who is left."""
    ranks, by = death.ranks, death.taken_over_by
    if by == NOBODY:
        return f"{plural(ranks, 'rank') if ranks else 'no rank'} {'are' if ranks > 1 else 'is'} left"
    others = "the other one" if ranks == 1 else f"the other {ranks}"
    return f"{others if by == OTHERS else 'its replacement'} took over, in {1000 * death.s:.1f} ms"
