"""The load that other programs put on the machine while a study ran: numbers of a row, a column and a sentence.

    row |= background_load_of(records); shown = load_columns(rows); load_line(rows, lambda row: row["grid"])

The one idea: a time is reliable only if no other program used the machine meanwhile. Every run's record has
`others_cores` (`energy/resource_usage.py`); a row has the median and the maximum of its runs; more than a tenth of a
core is shown. Reads records and rows only.

Limits: other programs' use of memory and disks is not seen.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from unisono.energy.resource_usage import disturbance
from unisono.report.run.files import is_number
from unisono.study.tables import Column, Row

FELT = 0.1
"""Cores: what is below that is a machine's own housekeeping."""
NUMBERS = ("others_cores", "others_cores_high", "machine_cores")
"""What rows have of it: the median over runs, the most of one; of how many cores."""


def background_load_of(records: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """The load during one row's runs; None: not known (under a quota, on other machines, in old records)."""
    records = list(records)
    used = [record["others_cores"] for record in records if record.get("others_cores") is not None]
    machines = [(record.get("summary") or {}).get("machine") or {} for record in records]
    cores = [found["cores"] for found in machines if found.get("cores")]
    return {
        "others_cores": median(used) if used else None,
        "others_cores_high": max(used, default=None),
        "machine_cores": max(cores, default=None),
    }


def _felt(cores: float) -> str:
    return f"{cores:.1f}" if cores > FELT else ""


def load_columns(rows: Sequence[Row]) -> list[Column]:
    """The most that others used during a run of each row; none if no run met others."""
    met = any((row.get("others_cores_high") or 0.0) > FELT for row in rows)
    return [Column("others_cores_high", "others' cores", _felt, minor=True)] if met else []


def load_line(rows: Sequence[Row], named: Callable[[Row], str]) -> str:
    """A sentence, if others were met; else nothing."""
    known = [row for row in rows if row.get("others_cores") is not None]
    if not known:
        return ""
    used, cores = median(row["others_cores"] for row in known), known[0].get("machine_cores")
    if cores and (told := disturbance(used, cores)):
        return told
    worst = max(known, key=lambda row: float(row["others_cores_high"]))
    if worst["others_cores_high"] <= FELT:
        return ""
    most = f"; the most during {named(worst)}" if len(known) > 1 else ""
    return f"Other programs used up to {worst['others_cores_high']:.1f} cores meanwhile{most}."


def has_plain_load(row: Row) -> bool:
    """Whether what a row of a file has of it is nothing, or numbers that belong together."""
    both = [row.get(name) is None for name in NUMBERS[:2]]
    return both[0] == both[1] and all(row.get(name) is None or is_number(row[name]) for name in NUMBERS)
