"""What limited a run, and the one thing to try next. Arithmetic on a summary, no measuring.

    advice(summary, totals, cores=2)     # "Limited by computing. Try --ranks 2: the same bits, sooner."

The one idea: of all that could be said, the first that holds, in the order in which it would help. Limits: it knows the
cores of this host and takes the others' for the same; that a larger batch needs other learning rates is the user's to
know.
"""

from typing import Any

from unisono.energy.background_load import disturbance
from unisono.report.run.aggregate import RunTotals
from unisono.strategies.registry import sums_in_arena

FELT = 0.1
"""Share of the computing time from which on the price of shards is worth a word."""


def live_shards(global_batch: int, shards: int) -> int:
    """Shards that are not empty in a whole batch: all have one size, so 10 samples in 8 shards are five shards of 2."""
    return -(-global_batch // -(-global_batch // shards))


def enough_ranks(live: int, most: int) -> int:
    """The fewest ranks, up to `most`, that are as fast as any: 8 shards on 5 ranks take as long as on 4."""
    rounds = -(-live // max(1, min(live, most)))
    return -(-live // rounds)


def idle_share(live: int, ranks: int) -> float:
    """Which part of the computing time ranks without a shard wait for those with one more."""
    return 1.0 - live / (ranks * -(-live // ranks))


def shard_cost(summary: dict[str, Any]) -> float:
    """Which part of the computing time goes to cutting batches into shards; 0 if it is not known."""
    price = summary.get("shard_price") or 1.0
    return max(0.0, 1.0 - 1.0 / float(price))


def same_bits(summary: dict[str, Any]) -> bool:
    """Whether another number of ranks would have given the same weights."""
    return sums_in_arena(summary["allreduce"]) and not summary["batch_size_per_rank"]


def disturbed(summary: dict[str, Any], totals: RunTotals, cores: int) -> str:
    """That other programs were in the way, if they were: ranks that had cores to themselves did not notice them."""
    busy = summary.get("others_cores")
    if busy is None or not totals.crowd * summary["threads"] + busy > cores:
        return ""
    return disturbance(busy, cores, f" of {totals.hosts[0]}" if totals.nodes > 1 else "")


def advice(summary: dict[str, Any], totals: RunTotals, cores: int) -> str:
    """What limited the run, and the one thing to try next."""
    limit = max(("compute_s", "sync_s", "data_s"), key=lambda name: float(summary[name]))
    ranks, live = summary["ranks"], live_shards(summary["global_batch"], summary["shards"])
    room = max(1, cores // summary["threads"]) * totals.nodes
    if limit == "compute_s":
        better = enough_ranks(live, room)
        if better > ranks:
            bits = "the same bits, " if same_bits(summary) else ""
            return f"Limited by computing. Try --ranks {better}: {bits}sooner."
        if shard_cost(summary) > FELT and summary["shards"] > ranks:
            return f"Limited by computing. Try --shards {ranks}: sooner, with other bits."
        return "Limited by computing, on all cores: this is as fast as it gets here."
    larger = totals.steps > totals.epochs  # else all data are one batch already
    if limit == "data_s":
        told = "Limited by gathering samples from memory"
        return f"{told}. Try a larger --batch-size." if larger else f"{told}, all of them in every step."
    if summary["update_s"] > summary["wait_s"]:
        told = "Limited by summing and updating: the model is large for its "
        return f"{told}batch. Try a larger --batch-size." if larger else f"{told}data, all of which are one batch."
    if totals.crowd * summary["threads"] > cores:
        what = f"{totals.crowd} ranks" + (f" x {summary['threads']} threads" if summary["threads"] > 1 else "")
        return (
            f"Limited by waiting: {what} share {cores} core{'s' * (cores > 1)}. Try --ranks {enough_ranks(live, room)}."
        )
    if enough_ranks(live, ranks) < ranks:
        return f"Limited by waiting: some ranks have no shard to compute. Try --ranks {enough_ranks(live, ranks)}."
    if disturbed(summary, totals, cores):
        return "Limited by waiting, for other programs use the cores. Try again when they are free."
    slow = totals.waited_for()
    if slow is not None and not live % ranks:
        return f"Limited by waiting for rank {slow.rank}. See what else runs on its host, {slow.host}."
    if ranks == 1:
        return "Limited by waiting, alone: something else uses the cores. Try again when they are free."
    told = "Limited by waiting: a step is too short to share"
    return f"{told}. Try a larger --batch-size, or fewer ranks." if larger else f"{told}. Try fewer ranks."
