"""Staleness: of asynchronous runs, how many updates late gradients came, epoch by epoch and as a histogram of all."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.report.html.blocks import Axis, Block, Rows, Section, Table
from unisono.report.html.downsampling import stretches
from unisono.report.html.number_text import finite, number_of, seconds_of, titled
from unisono.report.html.sections.epoch_curves import overlay
from unisono.report.run.load import Run

MOST_RUNS, MOST_ROWS = 6, 40
HEAD = (
    "run",
    "rule",
    "masters",
    "workers",
    "pushes",
    "dropped",
    "clipped",
    "updates/s",
    "masters busy",
    "waited a push",
)


def section(runs: Sequence[Run]) -> Section | None:
    """Nothing for synchronous runs."""
    stale = [run for run in runs if np.isfinite(run.numbers("staleness_mean")).any()]
    if not stale:
        return None
    means = {"mean": lambda run: run.numbers("staleness_mean"), "largest": lambda run: run.numbers("staleness_max")}
    curve = overlay(stale, "Staleness, epoch by epoch", Axis("updates late"), means, dashed="largest")
    blocks: list[Block] = [curve] if curve is not None else []
    blocks += [_histogram(run, several=len(stale) > 1) for run in stale[:MOST_RUNS] if len(counts_of(run))]
    return Section("Staleness", [*blocks, Table(HEAD, [_row(run) for run in stale])])


def counts_of(run: Run) -> np.ndarray:
    """Pushes of each staleness, in all epochs; what is no list of counts is left out."""
    columns = run.metrics.get("staleness_counts")
    rows = [row for row in ([] if columns is None else columns.tolist()) if _counts(row)]
    found = np.zeros(max(map(len, rows), default=0))
    for row in rows:
        found[: len(row)] += row
    return found


def _counts(row: Any) -> bool:
    return isinstance(row, list) and all(finite(count) and count >= 0 for count in row)


def _histogram(run: Run, *, several: bool) -> Rows:
    counts = counts_of(run)
    pieces = stretches(len(counts), MOST_ROWS)
    names = [f"{p.start}" if p.stop - p.start == 1 else f"{p.start}-{p.stop - 1}" for p in pieces]
    cells = np.array([[[0.0, counts[piece].sum()]] for piece in pieces])
    title = titled("pushes by how many updates late they came", run, several=several)
    return Rows(title, Axis("pushes"), names, ["updates late"], ["pushes"], cells)


def _row(run: Run) -> list[str]:
    found = run.summary
    return [
        run.name, str(found.get("staleness_rule", "")),
        *(number_of(found.get(name)) for name in ("masters", "workers", "pushes", "drops", "clips", "updates_per_s")),
        ", ".join(f"{100 * share:.0f} %" for share in _numbers(found.get("masters_busy"))),
        ", ".join(seconds_of(wait) for wait in _numbers(found.get("wait_per_push_s"))),
    ]  # fmt: skip


def _numbers(values: Any) -> list[float]:
    return [value for value in values if finite(value)] if isinstance(values, list) else []
