"""What `unisono bench` shows and writes: a table, CSV, JSON, and a plot with both axes logarithmic.

Reads records (see `measure/allreduce_bench_worker.record`) and nothing else.

    tables(records); write(records, Path("out"))
"""

import csv
import io
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from unisono.files import write_file
from unisono.resources import readable_bytes

Record = dict[str, Any]


def fastest(records: list[Record]) -> dict[tuple[int, int], Record]:
    """The fastest correct record for each (ranks, nbytes)."""
    best: dict[tuple[int, int], Record] = {}
    for record in records:
        key = (record["ranks"], record["nbytes"])
        if record["correct"] and (key not in best or record["median_us"] < best[key]["median_us"]):
            best[key] = record
    return best


def tables(records: list[Record]) -> list[Table]:
    """A table per number of ranks, a row per cell, grouped by size; the fastest of each size is marked."""
    return [table(records, ranks) for ranks in sorted({record["ranks"] for record in records})]


def table(records: list[Record], ranks: int) -> Table:
    best = fastest(records)
    shown = Table(title=f"all-reduce on {_ranks(ranks)}", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    shown.add_column("size", justify="right", no_wrap=True)
    shown.add_column("algorithm", no_wrap=True)
    for name in ("median us", "p95 us", "GB/s", "bus", "sent/rank", "formula", ""):
        shown.add_column(name, justify="right", no_wrap=True)
    group = None
    for record in sorted((r for r in records if r["ranks"] == ranks), key=lambda entry: entry["nbytes"]):
        size = record["nbytes"]
        if group not in (None, size):
            shown.add_section()
        first, group = group != size, size
        mark = record is best.get((ranks, size))
        sent, formula = record["sent_bytes_per_rank"], record["formula_bytes_per_rank"]
        shown.add_row(
            readable_bytes(size) if first else "",
            f"{record['transport']} {record['algorithm']}" + (" *" if mark else ""),
            _figure(record["median_us"]),
            _figure(record["p95_us"]),
            _figure(record["algorithm_gb_per_s"], 2),
            _figure(record["bus_gb_per_s"], 2),
            "" if sent is None else readable_bytes(round(sent)),
            "" if formula is None else readable_bytes(round(formula)),
            "ok" if record["correct"] else "WRONG",
            style="bold" if mark else ("red" if not record["correct"] else None),
        )
    return shown


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _figure(value: float, decimals: int = 1) -> str:
    return f"{value:.{decimals if value < 1000 else 0}f}"


def verdict(records: list[Record]) -> str:
    """What the table means, and the outcome in a sentence per number of ranks."""
    lines = ["* fastest. GB/s: size / median; bus: times 2(n-1)/n. sent/rank: counted, beside the formula."]
    ordered = sorted(fastest(records).items(), key=lambda entry: entry[0])
    for ranks, found in groupby(ordered, key=lambda entry: entry[0][0]):
        best = [record for _, record in found]
        runs: list[tuple[str, list[str]]] = []
        for record in best:
            name = f"{record['transport']} {record['algorithm']}"
            if not runs or runs[-1][0] != name:
                runs.append((name, []))
            runs[-1][1].append(readable_bytes(record["nbytes"]))
        told = ", ".join(f"{name} ({at[0]}{' to ' + at[-1] if len(at) > 1 else ''})" for name, at in runs)
        lines.append(f"Fastest on {_ranks(ranks)}: {told}.")
    if wrong := sum(not record["correct"] for record in records):
        lines.append(f"{wrong} cells gave a WRONG result: please report this, with the table.")
    return "\n".join(lines)


def write(records: list[Record], out: Path) -> list[Path]:
    """bench.csv, bench.json and bench.png in `out`, which exists."""
    columns = [name for name in records[0] if name != "samples_us"]
    table = io.StringIO()
    writer = csv.DictWriter(table, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(records)
    write_file(out / "bench.csv", table.getvalue())
    write_file(out / "bench.json", json.dumps(records, indent=1))
    plot(records, out / "bench.png")
    return [out / name for name in ("bench.csv", "bench.json", "bench.png")]


def plot(records: list[Record], path: Path) -> None:
    """Median time against size, a panel per number of ranks; both axes logarithmic."""
    from matplotlib.figure import Figure

    counts = sorted({record["ranks"] for record in records})
    figure = Figure(figsize=(5.5 * len(counts) + 2.2, 5), layout="constrained")
    panels = figure.subplots(1, len(counts), squeeze=False, sharey=True)[0]
    algorithms = sorted({record["algorithm"] for record in records})
    styles = {"shm": "-", "mpi": "--", "gloo": ":"}
    for panel, ranks in zip(panels, counts, strict=True):
        for transport in dict.fromkeys(record["transport"] for record in records):
            for index, algorithm in enumerate(algorithms):
                line = sorted(
                    (record["nbytes"], record["median_us"])
                    for record in records
                    if (record["ranks"], record["transport"], record["algorithm"]) == (ranks, transport, algorithm)
                )
                if line:
                    panel.plot(
                        *zip(*line, strict=True),
                        styles[transport],
                        color=f"C{index}",
                        marker="o",
                        markersize=3.5,
                        label=f"{transport} {algorithm}",
                    )
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.xaxis.set_major_formatter(lambda value, _: readable_bytes(value))
        panel.tick_params(axis="x", rotation=30)
        panel.set_title(f"all-reduce on {_ranks(ranks)}")
        panel.set_xlabel("size of the array")
        panel.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("median time (microseconds)")
    panels[-1].legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(memory := io.BytesIO(), format="png", dpi=130)
    write_file(path, memory.getbuffer())
