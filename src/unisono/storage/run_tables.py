"""The tables of a run: what the record of an epoch adds to each of them, as text. Pure.

The one idea: every line begins with its epoch, so what was written of epochs that are done again can be dropped.

    lines(record, ["W", "b"], mark)["metrics.jsonl"]

Limits: the order of the columns is a contract (see `rundir.py`), and those that only some strategies have come last.
"""

import csv
import io
import json
import math
import re
from typing import Any

from unisono.messages.reports import EpochRecord
from unisono.strategies.asynchronous.recordings import FIELDS as PUSH_FIELDS
from unisono.strategies.contributions import FIELDS

TABLES = ("metrics.jsonl", "ranks.csv", "sync_time.csv", "contributions.csv", "pushes.csv")
RANK_FIELDS = ("host", "samples", "compute_s", "sync_s", "wait_s", "data_s", "update_s", "last_steps")
"""Of ranks.csv, after epoch and rank. sync_s = wait_s + update_s; last_steps: steps in which this rank came last."""


def epoch_of(line: str) -> int | None:
    """The epoch that a line of one of the tables is about; None for a header."""
    found = re.match(r'(?:\{"epoch": |Epoch )?(\d{1,18})(?!\d)', line)
    return int(found[1]) if found else None


def headers(record: EpochRecord, parameters: list[str]) -> dict[str, str]:
    """The first line of those tables that have one."""
    fields = [f"{field}:{name}" for name in parameters for field in FIELDS]
    return {
        "ranks.csv": _row(["epoch", "rank", *RANK_FIELDS, *_others(record), *fields]),
        "pushes.csv": _row(list(PUSH_FIELDS)),
        "sync_time.csv": "Epoch, Sync Time (s)\n",
    }


def lines(record: EpochRecord, parameters: list[str], mark: str) -> dict[str, str]:
    """What a record adds to each file; `mark`: of the recipe, in every push."""
    epoch, ranks = record.metrics["epoch"], record.ranks
    syncs = [entry["wait_s"] + entry["update_s"] for entry in ranks]
    rows, told = "", ""
    for rank, (entry, sync_s, shares) in enumerate(zip(ranks, syncs, record.shares, strict=True)):
        found = entry | {"sync_s": sync_s}
        values = (found[name] for name in (*RANK_FIELDS, *_others(record)))
        rows += _row([epoch, rank, *values, *(x for row in shares for x in row)])
        each = [f"{name} Contribution = {100 * row[0]:.2f}%" for name, row in zip(parameters, shares, strict=True)]
        told += ", ".join([f"Epoch {epoch}", f"Process {rank}", *each]) + "\n"
    pushes = "".join(_row([epoch, *row, mark]) for row in record.pushes)
    return ({"pushes.csv": pushes} if pushes else {}) | {
        "metrics.jsonl": json.dumps(plain(record.metrics)) + "\n",
        "ranks.csv": rows,
        "sync_time.csv": f"{epoch}, {sum(syncs) / len(syncs):.6f}\n",
        "contributions.csv": told,
    }


def _others(record: EpochRecord) -> list[str]:
    """Columns that only some strategies have."""
    return [name for name in record.ranks[0] if name not in (*RANK_FIELDS, "exchange_s")]


def _row(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """As JSON can hold it: numbers that are none are null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
