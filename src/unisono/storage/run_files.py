"""The files of a run directory: their names, a check that they are regular files, and the lines of the tables.

    check_run_directory(Path("runs/mine"))
    lines(record, ["W", "b"], mark)["metrics.jsonl"]

The one idea: a run directory may come from a stranger. A link, a pipe or a device in it is refused by name before
anything is trained or written, so nothing outside is changed and nothing waits. In the tables every line begins with
its epoch, so lines of epochs that are done again can be dropped.

Limits: what is put there after the check is refused by `files.py` when its turn comes, which may be at the end. The
order of the columns is a contract (see `rundir.py`); columns that only some strategies have come last.
"""

import csv
import io
import json
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from unisono.errors import UserError
from unisono.files import WRONG_KINDS, check_entry
from unisono.messages.rank_reports import EpochRecord
from unisono.safe_print import shell_word
from unisono.strategies.asynchronous.recorded_order import FIELDS as PUSH_FIELDS
from unisono.strategies.contribution_stats import FIELDS as CONTRIBUTION_FIELDS

LOCK = ".lock"
REPORT = "report.html"
"""Made by `unisono report`, which does not ask for the lock."""
LIVE_PAGE = "live_page.txt"
"""The address of a live page, with its token, while `report/live` serves one to a batch job."""
TABLES = ("metrics.jsonl", "ranks.csv", "sync_time.csv", "contributions.csv", "pushes.csv")
FILES = {
    "recipe.toml", "summary.json", "weights.safetensors", "energy.json", "loss.png", REPORT, LIVE_PAGE, *TABLES,
    LOCK, "events.jsonl", "utilisation.csv",
}  # fmt: skip
FOLDERS = {"snapshots", "tensorboard", "log"}
RANK_FIELDS = ("host", "samples", "compute_s", "sync_s", "wait_s", "data_s", "update_s", "last_steps")
"""Columns of ranks.csv, after epoch and rank. sync_s = wait_s + update_s; last_steps: steps in which it was last."""


def resume_command(run: Path) -> str:
    """What to type to go on with a run."""
    return f"unisono train --resume {shell_word(str(run))}"


def check_run_directory(path: Path) -> None:
    """A `UserError` that names an entry which is a link, a pipe or a device, or a directory in place of a file."""
    if path.exists() and not path.is_dir():
        inside = path.name in FILES
        raise UserError(
            f"{path} is a file, not the directory of a run",
            hint=f"give the run directory: {shell_word(str(path.parent))}" if inside else "give that of a run",
        )
    try:
        _check_all(path)
    except OSError as error:
        if error.errno not in WRONG_KINDS:
            return  # it cannot be looked at: the code that uses it will say so
        raise UserError(
            f"{error.filename} {error.strerror}: a run writes to regular files of its own directory, and nowhere else",
            hint="nothing was changed; remove it, or put a copy of what it leads to in its place",
        ) from None


def _check_all(path: Path) -> None:
    for name in _names(path):
        kind = "folder" if name in FOLDERS else "file" if name in FILES else ""
        check_entry(path / name, kind)
    for name in _names(path / "log"):
        check_entry(path / "log" / name, "file" if name.endswith(".stack") else "", within=path)
    # Of snapshots, those that are no directories are passed over; those of TensorBoard get new names.
    check_entry(path / "snapshots" / LOCK, "file", within=path)


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.listdir(folder))
    return []


def epoch_of(line: str) -> int | None:
    """The epoch that a line of one of the tables is about; None for a header."""
    found = re.match(r'(?:\{"epoch": |Epoch )?(\d{1,18})(?!\d)', line)
    return int(found[1]) if found else None


def headers(record: EpochRecord, parameters: list[str]) -> dict[str, str]:
    """The first line of those tables that have one."""
    fields = [f"{field}:{name}" for name in parameters for field in CONTRIBUTION_FIELDS]
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
    """The columns that only some strategies have."""
    return [name for name in record.ranks[0] if name not in (*RANK_FIELDS, "exchange_s")]


def _row(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """As JSON can hold it: numbers that are none are null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
