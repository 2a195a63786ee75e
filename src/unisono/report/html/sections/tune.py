"""Tuning: how fast each setting is that `unisono tune` tried, the table, and what was found."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unisono.report.html.blocks import Axis, Block, Rows, Section, Text
from unisono.report.html.number_text import finite
from unisono.report.html.study_table import split_reasons, table_of
from unisono.report.run.load import Run
from unisono.report.studies.background_load import has_plain_load
from unisono.report.studies.tune import LABELS, table, words_of
from unisono.study.tables import REASON

NUMBERS = ("samples_per_s", "joules_per_sample", "memory_bytes", "train_s")
MOST_BARS = 40


def section(runs: Sequence[Run]) -> Section | None:
    """Of all runs that hold such a study."""
    blocks: list[Block] = []
    for run in runs:
        rows = [row for row in run.studies.get("tune", []) if usable(row)]
        if not rows:
            continue
        if len(runs) > 1:
            blocks.append(Text(run.name, "lead"))
        best = next((row["digest"] for row in rows if row.get("mark")), "")
        objective, complete = rows[0]["objective"], rows[0]["complete"]
        above, below = split_reasons(words_of(rows, best, objective, complete=complete), rows)
        blocks += above
        blocks += _bars(rows)
        blocks += [table_of(table(rows, best), rows), *below]
    return Section("Tuning", blocks) if blocks else None


def usable(row: Mapping[str, Any]) -> bool:
    """Whether it is a row of `unisono tune`."""
    given = [row.get(name) for name in LABELS]
    return (
        all(isinstance(row.get(name), str) for name in ("digest", REASON, "objective"))
        and isinstance(row.get("complete"), bool)
        and all(value is None or isinstance(value, str | int) for value in given)
        and all(row.get(name) is not None for name in ("ranks", "threads"))
        and all(row.get(name) is None or (finite(row[name]) and row[name] >= 0) for name in NUMBERS)
        and has_plain_load(row)
        and type(row.get("trials")) is int
        and isinstance(row.get("energy_source"), str | None)
        and (bool(row[REASON]) or all(row.get(name) is not None for name in ("samples_per_s", "shards", "batch_size")))
    )


def _bars(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The fastest first."""
    tried = sorted((row for row in rows if row.get("samples_per_s")), key=lambda row: -row["samples_per_s"])
    shown = tried[:MOST_BARS]
    if not shown:
        return []
    cells = np.array([[[0.0, row["samples_per_s"]]] for row in shown])
    names = [f"{row['ranks']} x {row['threads']}, {row['shards']} sh., batch {row['batch_size']}" for row in shown]
    note = "Ranks x threads, shards, global batch; of each setting the best of its trials."
    if len(tried) > len(shown):
        note += f" {len(tried) - len(shown)} slower ones are in the table only."
    return [Rows("Throughput of each setting", Axis("samples/s"), names, [""], ["samples/s"], cells, note=note)]
