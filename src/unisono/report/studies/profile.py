"""What `unisono profile` shows and writes: phases, modules, operators, activations; JSON and a trace.

Reads records (see `measure/profile/study.py`) and nothing else.

    tables(record, Shown(sort="self")); write([record], Path("out"))
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from unisono.files import write_file
from unisono.report.run.outcome_and_advice import plural, readable_s
from unisono.report.studies.background_load import background_load_of, load_columns, load_line
from unisono.report.studies.trace import write_trace
from unisono.resources import readable_bytes

Record = dict[str, Any]
Row = dict[str, Any]

PHASES = ("data", "forward", "backward", "sync", "waiting", "summing", "optimizer", "other")
COSTS = ("self_s", "total_s", "calls", "memory_bytes", "self_memory_bytes")
MOST_RANKS = 6
"""More have no column of their own."""
DISTURBED = 1.5
"""Mean steps that take so many times the median were interrupted."""
LEAST_S = 1e-7
"""Below it a time is not told as a number: to read a clock takes as long."""
FILES = ("profile.json", "trace.json")


@final
@dataclass(frozen=True)
class Shown:
    """How much of it, in which order."""

    sort: str = "self"
    memory: bool = True
    shapes: bool = False
    top: int = 12


def grouped(rows: Iterable[Row], *names: str) -> list[Row]:
    """Rows that agree in `names`, added up."""
    groups: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        kept = groups.setdefault(key, dict(zip(names, key, strict=True)) | dict.fromkeys(COSTS, 0))
        for name in COSTS:
            kept[name] = None if row[name] is None else kept[name] + row[name]
        kept["average_s"] = kept["total_s"] / kept["calls"]
    return list(groups.values())


def tables(record: Record, shown: Shown) -> list[Table]:
    """Phases of all ranks; modules, kinds of modules and operators of rank 0."""
    return [phases(record), *(costs(title, rows, shown, top) for title, rows, top in parts_of(record, shown))]


def parts_of(record: Record, shown: Shown) -> list[tuple[str, list[Row], int]]:
    """Modules, their kinds and operators of rank 0: a title, named rows, and how many of them are shown (0: all)."""
    modules = [row for row in record["modules"] if row["rank"] == 0]
    operators = [row for row in record["operators"] if row["rank"] == 0]
    whose = ", rank 0" if record["ranks"] > 1 else ""
    named = grouped([row | {"name": _name(row)} for row in modules], "name")
    kinds = grouped([row | {"name": f"{row['kind']}, {row['phase']}"} for row in modules], "name")
    about = ("operator", "shapes") if shown.shapes else ("operator",)
    kept = [row | {"name": " ".join(row[name] for name in about)} for row in operators]
    return [
        (f"modules{whose}", named, 0),
        *([(f"kinds of modules{whose}", kinds, 0)] if len(kinds) < len(named) else []),
        (f"operators{whose}", grouped(kept, "name"), shown.top),
    ]


def _name(row: Row) -> str:
    kind = "" if row["kind"] == row["module"] else f" {row['kind']}"
    return f"{row['module']}{kind}, {row['phase']}"


def phases(record: Record) -> Table:
    """A step in its phases: the mean over ranks, and each rank's."""
    ranks, batches = [with_sync(one) for one in record["phases"]], record["batches"]
    apart = ranks if 1 < len(ranks) <= MOST_RANKS else []
    shown = _table("phases of a step", "phase", "share", "a step", *(f"rank {one['rank']}" for one in apart))
    step_s = sum(one["step"] for one in ranks) / len(ranks)
    for name in PHASES:
        mean_s = sum(one[name] for one in ranks) / len(ranks)
        told = f"  {name}" if name in ("waiting", "summing") else name
        cells = [f"{one[name] / one['step']:.0%}".replace("%", " %") for one in apart]
        shown.add_row(told, f"{mean_s / step_s:.0%}".replace("%", " %"), _took(mean_s / batches), *cells)
    return shown


def with_sync(phases: Row) -> Row:
    """Sync is waiting and summing."""
    return phases | {"sync": phases["waiting"] + phases["summing"]}


def costs(title: str, rows: Sequence[Row], shown: Shown, top: int = 0) -> Table:
    """Shares are of what all rows take themselves."""
    head, cells = cost_cells(rows, shown, top)
    table = _table(title, *head)
    for line in cells:
        table.add_row(*line)
    return table


def cost_cells(rows: Sequence[Row], shown: Shown, top: int = 0) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of such a table, as texts; what is below the first `top` is one row."""
    names = ("self %", "self", "total %", "total", "average", "memory", "self mem.", "calls")
    columns = [name for name in names if shown.memory or "mem" not in name]
    whole = sum(row["self_s"] for row in rows) or 1.0
    listed, lines = sort(rows, shown.sort), []
    for row in listed[: top or None]:
        cells = {
            "self %": f"{100 * row['self_s'] / whole:.1f}",
            "self": _took(row["self_s"]),
            "total %": f"{100 * row['total_s'] / whole:.1f}",
            "total": _took(row["total_s"]),
            "average": _took(row["average_s"]),
            "memory": _bytes(row["memory_bytes"]),
            "self mem.": _bytes(row["self_memory_bytes"]),
            "calls": f"{row['calls']:,}",
        }
        lines.append([row["name"], *(cells[name] for name in columns)])
    if top and len(listed) > top:
        rest_s = sum(row["self_s"] for row in listed[top:])
        rest = [f"{len(listed) - top} more", f"{100 * rest_s / whole:.1f}", _took(rest_s)]
        lines.append(rest + [""] * (len(columns) - 2))
    return ["", *columns], lines


def sort(rows: Sequence[Row], by: str) -> list[Row]:
    """Largest first; names from a to z."""
    if by == "name":
        return sorted(rows, key=lambda row: str(row["name"]))
    column = {"memory": "memory_bytes", "calls": "calls"}.get(by, f"{by}_s")
    return sorted(rows, key=lambda row: row[column] or 0, reverse=True)


def activations(records: Sequence[Record], shown: Shown) -> Table:
    """A row per activation: what its layers took in each record; the fastest first."""
    head, cells = activation_cells(records, shown)
    table = _table("activations", *head)
    for line in cells:
        table.add_row(*line)
    return table


def activation_cells(records: Sequence[Record], shown: Shown) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of that table, as texts."""
    head = ["", "forward", "backward", "median", "times relu", *(["memory"] if shown.memory else []), "calls"]
    rows, lines = activation_rows(records), []
    met = load_columns(rows)
    head += [column.title for column in met]
    relu_s = next((row["median_s"] for row in rows if row["name"] == "relu"), None)
    for row in rows:
        times = f"{row['median_s'] / relu_s:.2f}" if relu_s else ""
        cells = [_took(row["forward_s"]), _took(row["backward_s"]), _took(row["median_s"]), times]
        memory = [_bytes(row["memory_bytes"])] if shown.memory else []
        lines.append([row["name"], *cells, *memory, f"{row['calls']:,}", *(column.text(row) for column in met)])
    return head, lines


def activation_rows(records: Sequence[Record]) -> list[Row]:
    """What the layers of each record's activation took, by medians; the fastest first."""
    rows = []
    for record in records:
        mine = [row for row in record["modules"] if row["rank"] == 0 and row["kind"].lower() == record["activation"]]
        halves = {phase: [row for row in mine if row["phase"] == phase] for phase in ("forward", "backward")}
        calls = sum(row["calls"] for row in halves["forward"]) or 1
        rows.append(
            {
                "name": record["activation"],
                "calls": calls,
                "forward_s": sum(row["total_s"] for row in halves["forward"]),
                "backward_s": sum(row["total_s"] for row in halves["backward"]),
                "median_s": sum(row["calls"] * row["median_s"] for row in halves["forward"]) / calls,
                "backward_median_s": sum(row["calls"] * _usual_s(row) for row in halves["backward"]) / calls,
                "memory_bytes": sum(row["memory_bytes"] or 0 for row in halves["forward"]),
                **others(record),
            }
        )
    return sorted(rows, key=lambda row: row["median_s"])


def _usual_s(row: Row) -> float:
    """The median of a call; the mean where single calls are not known (backward, with torch)."""
    return float(row["average_s"] if row["median_s"] is None else row["median_s"])


def others(record: Mapping[str, Any]) -> Row:
    """What other programs used meanwhile."""
    return background_load_of([{"others_cores": record.get("others_cores"), "summary": record}])


def sentences(record: Record) -> list[str]:
    """What was profiled, what looking cost, and how well modules add up."""
    looks = ", ".join(f"{name} {100 * share:+.0f} %" for name, share in record["overhead"].items())
    step_s, ratio = record["step_s"], record["modules_forward_s"] / (record["forward_s"] or 1.0)
    mean_s = record["phases"][0]["step"] / record["batches"]
    usual_s = step_s * (1 + max(0.0, record["overhead"].get("phases", 0.0)))
    lines = [
        f"{record['batches']} batches of {record['global_batch']} in {plural(record['shards'], 'shard')}: "
        f"{readable_s(step_s)} an unwatched step, {record['global_batch'] / step_s:,.0f} samples/s.",
        f"Looking cost: {looks} of a step. Phases below are of watched steps, {readable_s(mean_s)} on average.",
        f"A forward took {readable_s(record['forward_s'])}; its modules, watched one by one, add up to "
        f"{readable_s(record['modules_forward_s'])} ({100 * (ratio - 1):+.0f} %).",
    ]
    if mean_s > DISTURBED * usual_s:
        lines.append(
            f"Other programs were in the way: a step took {readable_s(mean_s)} on average, and mostly "
            f"{readable_s(usual_s)}. Sums below hold what interrupted them; repeat it when the machine is quiet."
        )
    elif told := load_line([others(record)], str):
        lines.append(told)
    return lines


def write(records: Sequence[Record], out: Path) -> list[Path]:
    """profile.json, a list of records without their spans, and trace.json of the first, in `out`, which exists."""
    kept = [{name: value for name, value in record.items() if name != "spans"} for record in records]
    write_file(out / "profile.json", json.dumps(kept, indent=1) + "\n")
    write_trace(records[0]["spans"], out / "trace.json")
    return [out / name for name in FILES]


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(first)  # where the terminal is narrow it is names that wrap, never numbers
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _took(seconds: float) -> str:
    return readable_s(seconds) if seconds >= LEAST_S else "< 0.1 us"


def _bytes(count: int | None) -> str:
    if count is None:
        return ""
    return f"-{readable_bytes(-count)}" if count < 0 else readable_bytes(count)
