"""What each rank did: its time (computing, gathering data, updating, waiting) and its share of the updates.

A contribution is <g_r, G> / <G, G> of an epoch's last step (`strategies/contribution_stats.py`): those of all ranks
add up to 100 %, single ones may be negative or above. Over all parameters they are weighted by the parameters' sizes.
The last step may be a ragged one, in which some ranks have fewer samples, or none: so colours are not around the even
share.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from unisono.report.html.blocks import Axis, Block, Heat, Rows, Section, Table, Text
from unisono.report.html.downsampling import CELLS, merged, stretches
from unisono.report.html.number_text import seconds_of, titled
from unisono.report.html.run_timeline import AXES, ends_s, epoch_s, marks_of
from unisono.report.run.findings import contributions_of, hosts_of, plan_of, sample_shares_of, sizes_of
from unisono.report.run.load import Run

PARTS = {"compute_s": "computing", "data_s": "gathering data", "update_s": "summing and updating", "wait_s": "waiting"}
MOST_RUNS, MOST_RANKS, MOST_PARAMETERS, MOST_CELLS = 6, 64, 60, 3000
WIDEST = 95
"""Percentile of the deviations at which the colours end: a single outlier would take them all."""


def times(runs: Sequence[Run]) -> Section | None:
    """A timeline of the ranks of each run; for several runs also a comparison of their times."""
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


def contributions(runs: Sequence[Run]) -> Section | None:
    """Two heat maps a run; nothing for a rank alone, which contributes everything."""
    blocks: list[Block] = []
    for run in [run for run in runs if run.size > 1][:MOST_RUNS]:
        found = {name: 100 * values for name, values in contributions_of(run).items() if np.isfinite(values).any()}
        if found:
            several = len(runs) > 1
            blocks.append(_by_epoch(run, found, titled("contribution to the updates", run, several=several)))
            if len(found) > 1:
                blocks.append(_by_parameter(run, found, titled("contribution to each parameter", run, several=several)))
    return Section("Who contributed what", blocks) if blocks else None


def _by_epoch(run: Run, found: dict[str, np.ndarray], title: str) -> Heat:
    sizes = sizes_of(run)
    weights = np.array([sizes[name] for name in found], np.float64)
    whole = np.stack([*found.values()], axis=-1) @ (weights / weights.sum())  # (epoch, rank)
    pieces, epochs = stretches(len(whole)), run.numbers("epoch").astype(int)
    ends = [(epochs[piece.start], epochs[piece.stop - 1]) for piece in pieces]
    names = [f"{first}" if first == last else f"{first}-{last}" for first, last in ends]

    def merge(how: Callable[..., np.ndarray], values: np.ndarray) -> np.ndarray:
        """(rank, stretch)."""
        return np.stack([how(values[piece, :MOST_RANKS], axis=0) for piece in pieces], axis=1)

    values, expected = merge(np.nanmean, whole), merge(np.nanmean, expected_of(run))
    note = "Of the last step of each epoch, over all parameters by their size; all ranks together are 100 %. " + merged(
        len(pieces), len(whole), "colours are means, the extremes are shown with them"
    )
    return Heat(
        title, Axis("epoch"), _ranks(run), names, values, expected, _reach(values - expected), "%",
        merge(np.nanmin, whole), merge(np.nanmax, whole), note.strip(),
    )  # fmt: skip


def _by_parameter(run: Run, found: dict[str, np.ndarray], title: str) -> Heat:
    names = list(found)[:MOST_PARAMETERS]
    values = np.stack([np.nanmean(found[name][:, :MOST_RANKS], axis=0) for name in names], axis=1)  # (rank, parameter)
    expected = np.nanmean(expected_of(run)[:, :MOST_RANKS], axis=0)[:, None] * np.ones(len(names))
    left = len(found) - len(names)
    note = "The mean over all epochs." + (f" The last {left} parameters are left out." if left else "")
    reach = _reach(values - expected)
    return Heat(title, Axis("parameter"), _ranks(run), names, values, expected, reach, "%", note=note)


def expected_of(run: Run) -> np.ndarray:
    """Each rank's share of the samples in the last step of each epoch in %, (epoch, rank); nan where it was not there.

    Even shares if it is not known how a batch was cut.
    """
    there = np.isfinite(run.by_rank("rank"))
    counts = there.sum(axis=1)
    found = np.full(there.shape, np.nan)
    for ranks in np.unique(counts[counts > 0]).tolist():  # several, if the run was resumed with others
        epochs = counts == ranks
        found[there & epochs[:, None]] = np.tile(sample_shares_of(run, ranks), epochs.sum())
    return 100 * found


def _ranks(run: Run) -> list[str]:
    return [f"rank {rank}" for rank in range(min(run.size, MOST_RANKS))]


def _reach(deviations: np.ndarray) -> float:
    """In %; at least a tenth, so that what is equal looks equal."""
    return max(float(np.nan_to_num(np.nanpercentile(np.abs(deviations), WIDEST))), 0.1)
