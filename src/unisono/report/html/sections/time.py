"""Time: what each rank did in each epoch (computing, gathering data, updating, waiting), and in all."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unisono.report.html.axes import AXES, ends_s, epoch_s, marks_of
from unisono.report.html.blocks import Axis, Block, Rows, Section, Table, Text
from unisono.report.html.downsampling import CELLS, merged, stretches
from unisono.report.html.number_text import seconds_of, titled
from unisono.report.run.findings import hosts_of, plan_of
from unisono.report.run.load import Run

PARTS = {"compute_s": "computing", "data_s": "gathering data", "update_s": "summing and updating", "wait_s": "waiting"}
MOST_RUNS, MOST_RANKS, MOST_CELLS = 6, 64, 3000


def section(runs: Sequence[Run]) -> Section | None:
    """A timeline a run, of its ranks; of several runs also what became of their time."""
    timed = [run for run in runs if np.isfinite(times_of(run)).any()]
    if not timed:
        return None
    blocks: list[Block] = [_whole(timed)] if len(timed) > 1 else []
    for run in timed[:MOST_RUNS]:
        blocks += [_timeline(run, titled("what each rank did", run, several=len(timed) > 1)), _table(run)]
    if (left := len(timed) - MOST_RUNS) > 0:
        blocks.append(Text(f"The ranks of {left} more runs are left out: give fewer runs to see them.", "note"))
    return Section("Where the time went", blocks)


def times_of(run: Run) -> np.ndarray:
    """Seconds, (epoch, rank, part)."""
    return np.stack([run.by_rank(name) for name in PARTS], axis=-1)


def _timeline(run: Run, title: str) -> Rows:
    times, lengths = np.nan_to_num(times_of(run)), epoch_s(run)
    shown = min(run.size, MOST_RANKS)
    pieces = stretches(len(times), max(10, min(CELLS, MOST_CELLS // max(1, shown))))
    starts = ends_s(run) - lengths
    cells = np.zeros((shown, len(pieces), 1 + len(PARTS)))
    for number, piece in enumerate(pieces):
        cells[:, number, 0] = starts[piece.start]
        cells[:, number, 1:] = times[piece, :shown].sum(axis=0)
    epochs = run.numbers("epoch").astype(int)
    labels = [_label(epochs[piece.start], epochs[piece.stop - 1]) for piece in pieces]
    notes = [
        "Parts of an epoch are sums, in no order; what is left empty is evaluation and other work between epochs.",
        merged(len(pieces), len(times), "times are sums over each"),
        f"Ranks from {shown} on are left out of the chart." if shown < run.size else "",
    ]
    marks = [replace(mark, at=mark.at[1:]) for mark in marks_of(run)]
    return Rows(
        title, AXES[1], [f"rank {rank}" for rank in range(shown)], labels, list(PARTS.values()),
        cells, marks, " ".join(note for note in notes if note),
    )  # fmt: skip


def _label(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first}-{last}"


def _whole(runs: Sequence[Run]) -> Rows:
    """A bar a run: means over its ranks."""
    cells = np.zeros((len(runs), 1, 1 + len(PARTS)))
    for number, run in enumerate(runs):
        cells[number, 0, 1:] = np.nan_to_num(times_of(run)).sum(axis=0).mean(axis=0)
    names = [run.name for run in runs]
    return Rows(
        "All epochs, the mean over the ranks", Axis("time", "s"), names, ["all epochs"], list(PARTS.values()), cells
    )


def _table(run: Run) -> Table:
    totals, last = np.nan_to_num(times_of(run)).sum(axis=0), np.nansum(run.by_rank("last_steps"), axis=0)
    samples, plan = np.nansum(run.by_rank("samples"), axis=0), plan_of(run)
    steps = plan.steps_per_epoch * len(run.numbers("epoch")) if plan else 0
    rows = []
    for rank, host in enumerate(hosts_of(run)[:MOST_RANKS]):
        came_last = f"{100 * last[rank] / steps:.0f} %" if steps and last.any() else ""
        times = [seconds_of(value) for value in totals[rank]]
        rows.append([f"{rank}", host, f"{samples[rank]:,.0f}", *times, came_last])
    return Table(("rank", "host", "samples", *PARTS.values(), "came last"), rows)
