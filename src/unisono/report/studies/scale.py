"""What `unisono scale` found: a row for each cell of the grid, and the table of them. Reads records only.

    rows = rows_of(cells, records, weak=False, cores=2); table(rows).write(rows, Path("studies/mine"), "scale")

The one idea: speed is samples per second of training (evaluation, start and files apart), so that strong and weak
scaling have one definition: the speed-up is the ratio of two rates of the same round, its efficiency that ratio by the
ratio of ranks.
"""

from collections.abc import Sequence
from typing import Any

from unisono.report.studies.background_load import load_columns
from unisono.report.studies.cell_rows import (
    BITS,
    LOST,
    REASON,
    SPEEDS,
    UTILISATION,
    compare_rates,
    energy_of,
    measured,
    percent,
    scores_of,
    useful,
)
from unisono.study.cells import Cell
from unisono.study.study import Record, counted, failure, losses
from unisono.study.tables import NOT_YET, Column, Row, Table

TITLE = "scaling, nodes x ranks; accuracies; ±: half the range of the repeats"


def rows_of(cells: Sequence[Cell], records: Sequence[Record], *, weak: bool, cores: int) -> list[dict[str, Any]]:
    """In the order of the cells; of one that has no finished run the reason is all there is."""
    rows = []
    for cell in cells:
        nodes, ranks = map(int, cell.labels["grid"].split("x"))
        row: dict[str, Any] = {"grid": cell.labels["grid"], "nodes": nodes, "ranks": ranks, "world": nodes * ranks}
        row |= {"threads": cell.recipe.ranks.threads, "cores": cores, "weak": weak}
        if runs := counted(records, cell):
            row |= measured(runs)
            row |= losses(records, cell)
            run_on: dict[str, Any] = next(iter(runs.values()))["summary"].get("machine") or {}
            row["utilisation"] = row["node_cores"] and row["node_cores"] / (run_on.get("cores") or cores)
        else:
            row["reason"] = failure(records, cell) or NOT_YET
        rows.append(row)
    base = baseline_of(rows)
    for row in rows:
        if base is not None and not row.get("reason"):
            compare_rates(row, base, "speed_up")
            if weak:
                del row["same_bits"]  # another batch, another result
            if "speed_up" in row:
                row["efficiency"] = row["speed_up"] * base["world"] / row["world"]
    return rows


def baseline_of(rows: Sequence[Row]) -> Row | None:
    """The smallest world that was measured; the first of them."""
    return min((row for row in rows if not row.get("reason")), key=lambda row: row["world"], default=None)


def bits_line(rows: Sequence[Row]) -> str:
    """Whether all weights are equal, in a sentence."""
    done = [row for row in rows if not row.get("reason")]
    base = baseline_of(done)
    if base is None or len(done) < 2 or base["weak"]:
        return ""
    runs = sum(row["repeats"] for row in done)
    if all(row["same_bits"] for row in done):
        return f"Bits: one weights_sha256 in all {runs} runs, {base['weights_sha256'][:16]}..."
    other = [row["grid"] for row in done if not row["same_bits"]]
    return f"Bits: the weights of {', '.join(other)} are not those of {base['grid']}."


def table(rows: Sequence[Row]) -> Table:
    """The columns that these rows have something for."""
    rows = list(rows)
    shown = [
        Column("grid", "grid", left=True),
        *scores_of(rows),
        *SPEEDS,
        Column("speed_up", "speed-up", ranged=2),
        Column("efficiency", "eff. %", percent(0)),
        Column("sync_share", "sync %", percent(0)),
        UTILISATION,
        energy_of(rows),
        BITS,
        *([LOST] if any(row.get("failed") for row in rows) else []),
        *load_columns(rows),
        REASON,
    ]
    return Table(f"{'weak' if rows and rows[0]['weak'] else 'strong'} {TITLE}", useful(shown, rows))
