"""Bench: all-reduce time and bandwidth against size, both axes logarithmic, a chart per number of ranks."""

from collections.abc import Sequence
from typing import Any

from unisono.report.html.blocks import Axis, Block, Fold, Lines, Section, Series, Table, Text
from unisono.report.html.number_text import bytes_of, finite, number_of
from unisono.report.run.load import Run
from unisono.report.studies.bench import verdict

NEEDED = ("ranks", "nbytes", "median_us", "p95_us", "algorithm_gb_per_s", "bus_gb_per_s")
MOST_CHARTED, MOST_SERIES = 12, 24
"""Numbers of ranks that have charts, and lines in each; the table has all."""
HEAD = ("ranks", "size", "transport", "algorithm", "median us", "p95 us", "GB/s", "bus GB/s", "right")


def section(runs: Sequence[Run]) -> Section | None:
    """Of all runs that hold such a study."""
    blocks: list[Block] = []
    for run in runs:
        records = [record for record in run.studies.get("bench", []) if usable(record)]
        if not records:
            continue
        if len(runs) > 1:
            blocks.append(Text(run.name, "lead"))
        blocks += [Text(line) for line in verdict(records).splitlines()[1:]]
        for ranks in sorted({record["ranks"] for record in records})[:MOST_CHARTED]:
            mine = [record for record in records if record["ranks"] == ranks]
            blocks.append(_chart(mine, f"Time on {ranks} ranks", Axis("median time", "s", log=True), "median_us", 1e-6))
            blocks.append(
                _chart(mine, f"Bus bandwidth on {ranks} ranks", Axis("bandwidth", "GB/s", log=True), "bus_gb_per_s", 1)
            )
        blocks.append(Fold("All measurements", [Table(HEAD, [_row(record) for record in records])]))
    return Section("All-reduce", blocks) if blocks else None


def usable(record: dict[str, Any]) -> bool:
    """Whether it is a record of `unisono bench`."""
    return (
        all(finite(record.get(name)) and record[name] >= 0 for name in NEEDED)
        and all(isinstance(record.get(name), str) for name in ("transport", "algorithm"))
        and isinstance(record.get("correct"), bool)
    )


def _chart(records: list[dict[str, Any]], title: str, y: Axis, name: str, scale: float) -> Lines:
    """A colour an algorithm; mpi and gloo are dashed, so that ours stand out."""
    algorithms = sorted({record["algorithm"] for record in records})
    series = []
    every = dict.fromkeys((record["transport"], record["algorithm"]) for record in records)
    for transport, algorithm in list(every)[:MOST_SERIES]:
        points = sorted(
            (record["nbytes"], record[name] * scale)
            for record in records
            if (record["transport"], record["algorithm"]) == (transport, algorithm) and record[name] > 0
        )
        x, values = [[point[at] for point in points] for at in (0, 1)]
        series.append(
            Series(f"{transport} {algorithm}", [x], values, algorithms.index(algorithm), dashed=transport != "shm")
        )
    return Lines(title, [Axis("size", "B", log=True)], y, series)


def _row(record: dict[str, Any]) -> list[str]:
    return [
        f"{record['ranks']}", bytes_of(record["nbytes"]), record["transport"], record["algorithm"],
        *(number_of(record[name]) for name in NEEDED[2:]), "yes" if record["correct"] else "NO",
    ]  # fmt: skip
