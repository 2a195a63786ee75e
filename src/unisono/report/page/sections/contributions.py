"""Contributions: each rank's share of the updates, by epoch and by parameter, as colours around the even share.

A contribution is <g_r, G> / <G, G> of an epoch's last step (`strategies/contributions.py`): those of all ranks add up
to 100 %, single ones may be negative or above. Over all parameters they are weighted by the parameters' sizes.
"""

from collections.abc import Sequence

import numpy as np

from unisono.report.page.blocks import Axis, Block, Heat, Section
from unisono.report.page.figures import titled
from unisono.report.page.sampling import merged, stretches
from unisono.report.recount import contributions_of, sizes_of
from unisono.report.run import Run

MOST_RUNS, MOST_RANKS, MOST_PARAMETERS = 6, 64, 60
WIDEST = 95
"""Percentile of the deviations from the even share at which the colours end: a single outlier takes them all else."""


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
    whole = np.nan_to_num(np.stack([*found.values()], axis=-1)) @ (weights / weights.sum())  # (epoch, rank)
    shown, pieces = whole[:, :MOST_RANKS], stretches(len(whole))
    epochs = run.numbers("epoch").astype(int)
    names = [
        f"{epochs[p.start]}" if p.stop - p.start == 1 else f"{epochs[p.start]}-{epochs[p.stop - 1]}" for p in pieces
    ]
    values, low, high = (np.stack([how(shown[p], axis=0) for p in pieces], axis=1) for how in (np.mean, np.min, np.max))
    note = "Of the last step of each epoch, over all parameters by their size; all ranks together are 100 %. " + merged(
        len(pieces), len(whole), "colours are means, the extremes are shown with them"
    )
    return Heat(
        title, Axis("epoch"), _ranks(run), names, values, "%",
        *_scale(run, values), low, high, note.strip(),
    )  # fmt: skip


def _by_parameter(run: Run, found: dict[str, np.ndarray], title: str) -> Heat:
    names = list(found)[:MOST_PARAMETERS]
    values = np.stack([np.nanmean(found[name][:, :MOST_RANKS], axis=0) for name in names], axis=1)  # (rank, parameter)
    left = len(found) - len(names)
    note = "The mean over all epochs." + (f" The last {left} parameters are left out." if left else "")
    return Heat(
        title, Axis("parameter"), _ranks(run), names, values, "%", *_scale(run, values),
        note=note,
    )  # fmt: skip


def _ranks(run: Run) -> list[str]:
    return [f"rank {rank}" for rank in range(min(run.size, MOST_RANKS))]


def _scale(run: Run, values: np.ndarray) -> tuple[float, float]:
    """The even share, and how far the colours reach on both sides of it."""
    even = 100 / run.size
    return even, max(float(np.nanpercentile(np.abs(values - even), WIDEST)), 0.1 * even)
