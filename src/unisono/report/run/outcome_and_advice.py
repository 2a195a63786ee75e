"""The verdict: how a run ended, where its time went, its energy, what limited it, the one thing to try next.

    print(verdict(summary, totals, "runs/mine", cores=2))
    advice(summary, totals, cores=2)     # "Limited by computing. Try --ranks 2: the same bits, sooner."
    energy_lines({"energy_j": 18700.0, "energy_source": "nvml", "energy_per_sample_j": 0.0623})

The one idea: a line is there only if it says something: a rank that was waited for, data unlike the others', shards
that cost time. `aggregate.py` decides what is neither chance nor small. An estimate of energy is never shown without
the word, nor a figure without its source. The advice is the first that holds, in the order in which it would help.
Arithmetic on a summary, no measuring.

Limits: it knows the cores of this host and assumes that other hosts have as many; that a larger batch needs another
learning rate is left to the user.
"""

from collections.abc import Sequence
from typing import Any

from unisono.energy.resource_usage import disturbance
from unisono.report.run.aggregate import RunTotals
from unisono.report.run.files import is_number
from unisono.strategies.registry import sums_in_arena

HUGE = 1e6
"""A loss that is shown as a power of ten."""
FELT = 0.1
"""Share of the computing time from which on the cost of shards is reported."""
PREFIXES = ((1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def verdict(
    summary: dict[str, Any],
    totals: RunTotals,
    path: str,
    cores: int,
    *,
    complete: bool = True,
    strategy_lines: Sequence[str] | None = None,
) -> str:
    """The outcome, where the time went, and where everything is, if it could be written."""
    held = "everything" if complete else "what could be written"
    where = f"weights {summary['weights_sha256'][:16]}...; {held} is in {path}"
    return "\n".join([*findings(summary, totals, cores, strategy_lines), where])


def findings(
    summary: dict[str, Any], totals: RunTotals, cores: int, strategy_lines: Sequence[str] | None = None
) -> list[str]:
    """Sentences: the outcome, where the time went, what stood out; the last one says what to try.

    strategy_lines: sentences of an asynchronous run, which replace those about steps.
    """
    lines = []
    if summary["stopped_early"]:
        lines.append(f"Stopped early after epoch {summary['epochs']}: {summary['stopped_early']}.")
    return [
        *lines,
        f"{_score(summary, totals)}; {readable_s(summary['train_s'])} of training{since_resumed(summary)}, "
        f"{readable_s(summary['wall_s'])} in all, {summary['samples_per_s']:,.0f} samples/s.",
        _times(summary, totals) + (_syncs(summary, totals) if strategy_lines is None else "."),
        *energy_lines(summary),
        *([background] if (background := disturbed(summary, totals, cores)) else []),
        *((*_notes(summary, totals), advice(summary, totals, cores)) if strategy_lines is None else strategy_lines),
    ]


def since_resumed(summary: dict[str, Any]) -> str:
    """The epochs that times, throughput and energy are about, if not all."""
    timed, epochs = summary.get("epochs_timed"), summary.get("epochs")
    if not (type(timed) is int and type(epochs) is int and 0 <= timed < epochs):
        return ""
    return f" since it was resumed ({timed} of {epochs} epochs)"


def readable_s(seconds: float) -> str:
    """0.00012 -> '120 us', 0.0815 -> '81.5 ms', 75 -> '75.0 s', 4000 -> '1:06:40'."""
    if seconds >= 600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
    value, unit = seconds, "s"
    for smaller in ("ms", "us"):
        if value < 1:
            value, unit = 1000 * value, smaller
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def readable_loss(loss: float) -> str:
    """0.5 -> '0.5000', 4.26e30 -> '4.2600e+30': long rows of digits before the point are left out."""
    return f"{loss:.4f}" if abs(loss) < HUGE else f"{loss:.4e}"


def plural(count: int | str, noun: str) -> str:
    """1 rank, 2 ranks."""
    return f"{count} {noun}" if str(count) == "1" else f"{count} {noun}s"


def _score(summary: dict[str, Any], totals: RunTotals) -> str:
    """On the test part; without one, on the best that there is."""
    scores = {"test": summary, "validation": totals.metrics, "train": summary}
    part = next(name for name, found in scores.items() if found.get(f"{name}_loss") is not None or name == "train")
    loss, accuracy = scores[part][f"{part}_loss"], scores[part][f"{part}_accuracy"]
    told = f"{part} loss {readable_loss(loss)}"
    if accuracy is not None:  # 0 is an accuracy; None: there are no classes
        told = f"{part} accuracy {100 * accuracy:.2f} %, {told}"
    return told if part == "test" else f"{told} (there are no test data)"


def _times(summary: dict[str, Any], totals: RunTotals) -> str:
    compute, data, wait, update = (totals.mean_s(f"{name}_s") for name in ("compute", "data", "wait", "update"))
    total = (compute + data + wait + update) or 1.0
    whose = "The rank's time" if totals.ranks == 1 else f"The time of all {totals.ranks} ranks"
    return (
        f"{whose}: compute {compute / total:.0%}, sync {(wait + update) / total:.0%} (waiting {wait / total:.0%}, "
        f"updating {update / total:.0%}), data {data / total:.0%}"
    ).replace("%", " %")


def _syncs(summary: dict[str, Any], totals: RunTotals) -> str:
    first, steady = summary["first_sync_s"], totals.steady_sync_s(summary["first_sync_s"])
    others = f", the others {readable_s(steady)} each" if steady > 0 and totals.syncs > 1 else ""
    return f"; the first sync took {readable_s(first)}{others}."


def _notes(summary: dict[str, Any], totals: RunTotals) -> list[str]:
    """What stood out; mostly nothing does."""
    if lost := summary.get("takeovers", 0):
        often = "once" if lost == 1 else f"{lost} times"
        return [f"Ranks were lost and taken over {often}; the times are of those who worked."]
    notes = []
    ranks, live = summary["ranks"], live_shards(summary["global_batch"], summary["shards"])
    if live % ranks:
        enough = enough_ranks(live, ranks)
        told = f"{live} shards do not divide among {ranks} ranks, which idle {100 * idle_share(live, ranks):.0f} % of"
        told += " the computing time"
        notes.append(f"{told}; {enough} would be as fast." if enough < ranks else f"{told}.")
    elif (slow := totals.waited_for()) is not None:
        notes.append(
            f"Rank {slow.rank} on {slow.host} was waited for in {100 * slow.share:.0f} % of the steps; "
            f"the others waited {readable_s(slow.others_wait_s)} for it."
        )
    notes += [
        f"Rank {found.rank} contributed {100 * found.contribution:.0f} % of the updates with {100 * found.samples:.0f} "
        "% of the samples (mean over epochs, and over parameters by their size): unbalanced data."
        for found in totals.dominant()
    ]
    if totals.exchange_s:
        share = totals.exchange_s / (totals.mean_s("compute_s") or 1.0)
        notes.append(
            f"Synchronised batch norm took {100 * share:.0f} % of the computing time "
            f"({readable_s(totals.exchange_s)}): "
            "its layers, where shards wait for each other, forward and backward."
        )
    cost = shard_cost(summary)
    if cost > FELT and summary["shards"] > ranks:
        reach = f"1-{ranks} ranks only" if ranks > 1 else "1 rank only"
        price = f", at the price of other bits, the same on {reach}" if same_bits(summary) else ""
        notes.append(
            f"{summary['shards']} shards cost {100 * cost:.0f} % of the computing time here; --shards {ranks} would be "
            f"faster{price}."
        )
    return notes


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
    """A sentence if other programs slowed the run; not if the ranks had cores to themselves."""
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


def readable_j(joules: float) -> str:
    """18700 -> '18.7 kJ', 0.000121 -> '121 uJ'."""
    if not joules:
        return "0 J"
    size, prefix = next((entry for entry in PREFIXES if abs(joules) >= entry[0]), PREFIXES[-1])
    value = joules / size
    return f"{value:.0f} {prefix}J" if abs(value) >= 100 else f"{value:.1f} {prefix}J"


def energy_lines(summary: dict[str, Any]) -> list[str]:
    """What a run ends with; nothing where nothing can be said."""
    lines = []
    names = ("energy_j", "energy_per_sample_j", "energy_idle_j")
    joules, per_sample, idle_j = (value if is_number(value := summary.get(name)) else None for name in names)
    if joules is not None:
        each = f", {readable_j(per_sample)} a sample" if per_sample else ""
        rest = f", of which {readable_j(idle_j)} would have been used by an idle machine" if idle_j is not None else ""
        note = summary.get("energy_note") or ""
        source = summary.get("energy_source")
        how = f"{source}: {note or 'whole nodes'}"  # a note says what is missing
        lines.append(f"Energy: {readable_j(joules)}{each}{rest} ({how}).")
    elif why := summary.get("energy_note"):
        lines.append(f"Energy: not known ({why}).")
    idle = summary.get("idle_ranks")
    if isinstance(idle, list) and idle:
        who = f"Rank {idle[0]}" if len(idle) == 1 else f"Ranks {', '.join(map(str, idle))}"
        lines.append(f"{who} did nothing: never as much as 5 % of a core was used.")
    return lines
