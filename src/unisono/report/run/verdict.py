"""The verdict: how a run ended, where its time went, what stood out, the one thing to try next. Text only.

    print(verdict(summary, totals, "runs/mine", cores=2))

The one idea: a line is there only if it says something: a rank that was waited for, data unlike the others', shards
that cost time. What is neither chance nor small is decided in `aggregate.py`, what to do about it in `advice.py`.
"""

from collections.abc import Sequence
from typing import Any

from unisono.report.run.advice import (
    FELT,
    advice,
    disturbed,
    enough_ranks,
    idle_share,
    live_shards,
    same_bits,
    shard_cost,
)
from unisono.report.run.aggregate import RunTotals
from unisono.report.run.energy import energy_lines

HUGE = 1e6
"""A loss that is shown as a power of ten."""


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
    """Of which epochs times, throughput and energy are, if not of all."""
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
    """0.5 -> '0.5000', 4.26e30 -> '4.2600e+30': digits before the point that nobody could count are left out."""
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
