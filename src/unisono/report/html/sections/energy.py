"""Energy and utilisation: joules and where they are known from; what ranks, node and GPUs did, every two seconds."""

from collections.abc import Sequence

import numpy as np

from unisono.report.html.blocks import Axis, Block, Lines, Section, Series, Table
from unisono.report.html.downsampling import thin, thinned
from unisono.report.html.number_text import finite, titled
from unisono.report.run.load import Run
from unisono.report.run.outcome_and_advice import readable_j

ALL_RANKS = "all ranks"
NOTE = "node: cores in use by any program; ranks: by this run's."
MOST_RUNS, MOST_LINES, LEAST = 6, 12, 3
"""Charts; lines of each; and points below which a line says nothing."""
CHARTS = {"utilisation": ("cores in use; of GPUs: share of the time", ""), "power_w": ("power", "W")}


def section(runs: Sequence[Run]) -> Section | None:
    """Nothing where neither is known. The energy of one run alone stands in its verdict."""
    told = [run for run in runs if finite(run.summary.get("energy_j")) or run.summary.get("energy_note")]
    blocks: list[Block] = []
    if told and len(runs) > 1:
        blocks.append(Table(("run", "energy", "a sample", "source"), [_row(run) for run in told]))
    watched = [run for run in runs if len(run.utilisation.get("s_after_start", ()))]
    for run in watched[:MOST_RUNS]:
        blocks += _charts(run, several=len(runs) > 1)
    return Section("Energy and utilisation", blocks) if blocks else None


def _row(run: Run) -> list[str]:
    summary = run.summary
    if not finite(summary.get("energy_j")):
        return [run.name, "not known", "", str(summary["energy_note"])]
    per_sample = readable_j(summary["energy_per_sample_j"]) if finite(summary.get("energy_per_sample_j")) else ""
    return [run.name, readable_j(summary["energy_j"]), per_sample, str(summary.get("energy_source", ""))]


def _charts(run: Run, *, several: bool) -> list[Block]:
    table = run.utilisation
    times, what = table["s_after_start"], table.get("what")
    if what is None or times.dtype == object:
        return []
    found: list[Block] = []
    for name, (label, unit) in CHARTS.items():
        values = table.get(name)
        if values is None or values.dtype == object:
            continue
        series, longest = [], (0, 0)
        lines: dict[object, list[int]] = {}
        for line in np.flatnonzero(np.isfinite(values) & np.isfinite(times)).tolist():
            lines.setdefault(what[line], []).append(line)
        every = sorted(lines, key=_is_rank)
        if sum(map(_is_rank, every)) < 2:  # their sum would hide the only one
            every = [whose for whose in every if whose != ALL_RANKS]
        for number, whose in enumerate(every):
            mine = lines[whose]
            x, y = times[mine].astype(np.float64), values[mine].astype(np.float64)
            if len(y) >= LEAST:
                kept = thin(y)
                longest = max(longest, (len(y), len(kept)))
                series.append(Series(str(whose), [x[kept]], y[kept], number, dashed=bool(whose == "node")))
        if series:
            left = len(series) - MOST_LINES
            note = f"{NOTE} " if name == "utilisation" and ALL_RANKS in what else ""
            note += f"{left} more are left out. " if left > 0 else ""
            note = (note + thinned(longest[1], longest[0])).strip()
            shown = series[:MOST_LINES]
            title = titled(name.removesuffix("_w"), run, several=several)
            found.append(Lines(title, [Axis("time", "s")], Axis(label, unit), shown, note=note))
    return found


def _is_rank(what: object) -> bool:
    """Ranks come last: where there are too many lines, the node and its GPUs stay."""
    return str(what).startswith("rank ")
