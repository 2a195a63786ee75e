"""What `unisono predict` says: a table for each network, the knee, and how far the model is from what was measured.

    for line in words_of(rows, errors): print(line)

Reads rows and points only; see `measure/prediction/` for what is in them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unisono.report.run.outcome_and_advice import plural, readable_s
from unisono.report.studies.background_load import load_columns, load_line
from unisono.report.studies.cell_rows import percent
from unisono.study.tables import Column, Row, Table

AIM = 0.2
"""By how much a prediction may be off."""


def table(rows: Sequence[Row]) -> Table:
    """Of one network."""
    network = rows[0]["network"] if rows else ""
    shown = [
        Column("nodes", "nodes"),
        Column("batch", "batch", compact),
        Column("algorithm", "sync by", left=True),
        Column("step_s", "step", readable_s),
        Column("samples_per_s", "samples/s", compact),
        Column("efficiency", "eff. %", percent(0)),
        Column("network_share", "net %", percent(0), minor=True),
        Column("local_samples_per_s", "local", compact),
        Column("async_samples_per_s", "async", compact),
        Column("best", "fastest", left=True),
        Column("reason", "why not", left=True),
    ]
    kept = [column for column in shown if any(row.get(column.name) is not None for row in rows)]
    ranks = rows[0]["ranks"] // rows[0]["nodes"] if rows else 0
    told = f"predicted for {network}, {plural(ranks, 'rank')} a node: sync, and samples/s of local SGD and async"
    return Table(told, kept)


def compact(count: float) -> str:
    """1234 -> '1,234', 2210844 -> '2.21M'."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:,.0f}"


def checks(points: Sequence[Mapping[str, Any]]) -> Table:
    """Predicted and measured steps; those that were held out last."""
    return Table(
        "a step here, predicted and measured",
        [
            Column("name", "run", left=True),
            Column("predicted_s", "predicted", readable_s),
            Column("measured_s", "measured", readable_s),
            Column("error", "error", lambda error: f"{100 * error:+.0f} %"),
            *load_columns(points),
            Column("held_out", "", lambda held: "held out" if held else "fitted", left=True),
        ],
    )


def words_of(rows: Sequence[Row], points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where more nodes stop being worth it on each network; how good the model is."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = [row for row in rows if row["network"] == network]
        lines += [_knee(network, mine)]
        lines += [f"{plural(row['nodes'], 'node')}: {row['reason']}." for row in mine if row.get("reason")][:1]
    held = [abs(point["error"]) for point in points if point["held_out"]]
    if held:
        met = "within" if max(held) <= AIM else "NOT within"
        lines.append(
            f"On {len(held)} held-out points here the model is off by {100 * sum(held) / len(held):.0f} % on average, "
            f"{100 * max(held):.0f} % at most: {met} the {100 * AIM:.0f} % that it aims at. Networks were not measured."
        )
    else:
        lines.append("Nothing was measured here: the numbers are as good as the rate that was given.")
    if told := load_line(points, lambda point: str(point["name"])):
        lines.append(told)
    lines.append("async: throughput alone, with the recipe's masters; what stale gradients cost is not in it.")
    return lines


def _knee(network: str, rows: Sequence[Row]) -> str:
    done = [row for row in rows if not row.get("reason")]
    good = [row for row in done if row["efficiency"] >= 0.5]
    if not good:
        return f"{network}: there is no number of nodes on which half of each would be put to use."
    last = max(good, key=lambda row: row["nodes"])
    told = f"{network}: sync is worth half of its nodes or more up to {last['nodes']} of them"
    told += f" ({100 * last['efficiency']:.0f} %, {last['samples_per_s']:,.0f} samples/s)"
    top = max(done, key=lambda row: row["samples_per_s"])
    if top is not done[-1]:
        told += f"; beyond {plural(top['nodes'], 'node')} it gets slower"
    faster = [row for row in done if row.get("best_efficiency", row["efficiency"]) > row["efficiency"]]
    other = next((row for row in faster if row["nodes"] > 1), None)
    if other is not None:
        told += f"; from {other['nodes']} nodes on {other['best']} is faster"
    return told + "."
