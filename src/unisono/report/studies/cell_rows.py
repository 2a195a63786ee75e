"""The runs of one cell as one row: medians over the rounds, ranges of the times, whether the weights are the same.

    row = measured({0: record, 1: record}); row["train_s"], row["train_s_low"], row["rates"]

Reads records of studies only. Accuracies are medians too: a strategy that is not repeatable has several.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from statistics import median
from typing import Any

from unisono.report.run.files import is_number
from unisono.report.run.outcome_and_advice import readable_loss, readable_s
from unisono.report.studies.background_load import background_load_of, has_plain_load
from unisono.study.statistics import Spread, paired, spread_of
from unisono.study.tables import Column, Row

TIMES = ("compute_s", "data_s", "wait_s", "update_s")
"""The parts of a rank's time."""
OTHERS = (
    "train_accuracy", "test_accuracy", "train_loss", "test_loss", "energy_j", "global_batch", "shards", "steps",
    "peak_memory_bytes", "epochs",
)  # fmt: skip
SHORT_S = 1.0
"""Of training: below that, what is done once weighs as much as what is measured."""


def measured(found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """By repeat: the records of at least one finished run."""
    summaries = [record["summary"] for record in found.values()]
    row: dict[str, Any] = {"repeats": len(found)}
    for name in ("train_s", "wall_s", "samples_per_s"):
        row |= with_range(name, spread_of([summary[name] for summary in summaries]))
    row["rates"] = {str(repeat): record["summary"]["samples_per_s"] for repeat, record in found.items()}
    for name in (*TIMES, *OTHERS):
        values = [summary[name] for summary in summaries if summary.get(name) is not None]
        row[name] = median(values) if values else None
    total_s = sum(row[name] or 0.0 for name in TIMES)
    row["sync_share"] = ((row["wait_s"] or 0.0) + (row["update_s"] or 0.0)) / total_s if total_s else None
    hashes = {summary["weights_sha256"] for summary in summaries}
    row["weights_sha256"] = hashes.pop() if len(hashes) == 1 else None
    row["energy_source"] = "+".join(sorted({str(summary.get("energy_source", "none")) for summary in summaries}))
    busy = [record["node_cores"] for record in found.values() if record.get("node_cores") is not None]
    row["node_cores"] = median(busy) if busy else None
    row |= background_load_of(found.values())
    curves = [record["accuracies"] for record in found.values() if record.get("accuracies")]
    row["accuracies"] = [median(values) for values in zip(*curves, strict=False)] or None  # some may stop early
    return row


def short_line(rows: Sequence[Row], name: str) -> str:
    """A sentence, if runs are too short to tell much; nothing otherwise. name: of what tells rows apart."""
    done = [row for row in rows if not row.get("reason")]
    least = min(done, key=lambda row: row["train_s"], default=None)
    if least is None or least["train_s"] >= SHORT_S:
        return ""
    epochs = max(1, ceil((least.get("epochs") or 1) * 2 * SHORT_S / max(1e-3, least["train_s"])))
    return (
        f"Short runs: {least[name]} trains for {readable_s(max(0.0, least['train_s']))} only. Below about a second the "
        f"first steps, which set things up, and chance decide such figures: give more epochs (--epochs {epochs} would "
        "make it 2 s)."
    )


def plain_numbers(row: Row, *names: str) -> bool:
    """Whether what a row of a file has under these names, and where tables look, is nothing or a number."""
    named = (*names, *TIMES, *OTHERS, "sync_share", "failed")
    return has_plain_load(row) and all(row.get(name) is None or is_number(row[name]) for name in named)


def with_range(name: str, spread: Spread) -> dict[str, float]:
    """NAME, NAME_low, NAME_high, as columns with a range read them."""
    return {name: spread.median, f"{name}_low": spread.low, f"{name}_high": spread.high}


def compare_rates(row: dict[str, Any], base: Row, name: str) -> None:
    """Adds how many times as fast as `base` a row is, by rounds, and whether its weights are the same."""
    gain = paired(row["rates"], base["rates"])
    if gain is not None:
        row.update(with_range(name, gain))
        row[f"{name}_rounds"] = gain.count
    row["same_bits"] = bool(row["weights_sha256"]) and row["weights_sha256"] == base["weights_sha256"]


def failed_runs_line(row: Row, name: str) -> str:
    """Of runs that failed beside others that did not, in a sentence; else nothing."""
    if row.get("reason") or not row.get("failed"):
        return ""
    count = row["repeats"]
    return f"{name}: {count} of {count + row['failed']} runs; {row['failed']} failed: {row['failed_reason']}"


def percent(decimals: int) -> Callable[[float], str]:
    """A share as a text, for columns that say % above."""
    return lambda share: f"{100 * share:.{decimals}f}"


SCORES = (
    Column("train_accuracy", "train %", percent(2), minor=True),
    Column("test_accuracy", "test %", percent(2)),
)
LOSSES = (
    Column("train_loss", "train loss", readable_loss),
    Column("test_loss", "test loss", readable_loss),
)
"""Shown where there is no accuracy."""
SPEEDS = (
    Column("train_s", "time s", ranged=2),
    Column("wall_s", "in all s", lambda value: f"{value:.2f}", minor=True),
    Column("samples_per_s", "samples/s", lambda value: f"{value:,.0f}"),
)
BITS = Column("same_bits", "bits", lambda same: "same" if same else "other")
LOST = Column("failed", "failed runs", lambda count: f"{count}" if count else "", minor=True)
UTILISATION = Column("utilisation", "util. %", percent(0), minor=True)
"""Of the node's cores, those that ranks kept busy."""


def by_epoch(accuracies: Sequence[float]) -> str:
    """'75.2 88.1 91.0', of many the first three and the last two."""
    texts = [f"{100 * accuracy:.1f}" for accuracy in accuracies]
    return " ".join(texts if len(texts) <= 6 else [*texts[:3], "...", *texts[-2:]])


EPOCHS = Column("accuracies", "% by epoch", by_epoch, left=True, minor=True)
REASON = Column("reason", "why not", left=True)


def useful(columns: list[Column], rows: list[Row]) -> list[Column]:
    """Those that these rows have something for."""
    return [column for column in columns if any(row.get(column.name) not in (None, "") for row in rows)]


def energy_of(rows: list[Row]) -> Column:
    """An estimate is called one."""
    estimated = any(row.get("energy_source") == "estimate" for row in rows)
    return Column("energy_j", "energy J, est." if estimated else "energy J", lambda value: f"{value:,.1f}")


def scores_of(rows: list[Row]) -> list[Column]:
    """Accuracies, or losses where there are none."""
    return useful(list(SCORES), rows) or useful(list(LOSSES), rows)
