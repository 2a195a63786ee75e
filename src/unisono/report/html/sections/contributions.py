"""Contributions: each rank's share of the updates, by epoch and by parameter, against its share of the samples.

A contribution is <g_r, G> / <G, G> of an epoch's last step (`strategies/contributions.py`): those of all ranks add up
to 100 %, single ones may be negative or above. Over all parameters they are weighted by the parameters' sizes. The last
step may be a ragged one, in which some ranks have fewer samples, or none: so colours are not around the even share.
"""

from collections.abc import Callable, Sequence

import numpy as np

from unisono.report.html.blocks import Axis, Block, Heat, Section
from unisono.report.html.downsampling import merged, stretches
from unisono.report.html.number_text import titled
from unisono.report.run.findings import contributions_of, sample_shares_of, sizes_of
from unisono.report.run.load import Run

MOST_RUNS, MOST_RANKS, MOST_PARAMETERS = 6, 64, 60
WIDEST = 95
"""Percentile of the deviations at which the colours end: a single outlier would take them all."""


def section(runs: Sequence[Run]) -> Section | None:
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
