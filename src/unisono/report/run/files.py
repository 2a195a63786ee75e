"""Files of a run directory, read as they are: what is damaged is left out and named, the rest is there.

    problems: list[str] = []
    rows = read_rows(Path("runs/mine/metrics.jsonl"), problems); columns_of(rows)["train_loss"]

The one idea: nothing in these files is believed. A run may be going on, may have been killed in the middle of a line,
may come from a stranger: no content of theirs raises here, and a problem is a sentence for the reader of a report.
Links are not followed: a stranger's recipe.toml that leads to a file of yours would put it into the page you pass on.

What a table may grow to is bounded as well: by the values that it would have, not by what the file says.

Limits: of a file of more than 64 MiB the middle is left out. A hard link looks like any other file.
"""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from unisono.files import open_file
from unisono.parsing import parse_json, parse_toml

Columns: TypeAlias = dict[str, np.ndarray]
"""By name, all of one length: int64, float64 (nan: nothing there), or object for what is not numbers."""

MOST_BYTES = 64 << 20
"""More of a file is not read: it would take minutes, and memory that a training beside it needs."""
MOST_COLUMNS = 1 << 12
MOST_VALUES = 1 << 22
"""Of a table with a column for each name that any of its records has: records of a few bytes, each with a name of its
own, would have the square of them."""
_HUGE = 10**308
MOST_PROBLEMS = 20
"""Lines of one file that are named one by one."""


def read_text(path: Path, problems: list[str]) -> str | None:
    """None if it is not there or cannot be read; what is no UTF-8 is replaced."""
    try:
        with open_file(path, follow_links=False) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, MOST_BYTES)) if size <= MOST_BYTES else _ends(file, size)
        if size > MOST_BYTES:
            problems.append(f"{path.name} has {size / 2**20:,.0f} MiB: its middle is left out")
        return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(f"{path.name}: {error.strerror}")
        return None


def _ends(file: BinaryIO, size: int) -> bytes:
    """The first and the last lines."""
    head = file.read(MOST_BYTES // 2)
    file.seek(size - MOST_BYTES // 2)
    tail = file.read(MOST_BYTES // 2)
    return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]


def read_toml(path: Path, problems: list[str]) -> dict[str, Any]:
    """A TOML file; empty if it is missing or none."""
    return _whole(path, problems, parse_toml, "TOML")


def read_json(path: Path, problems: list[str]) -> dict[str, Any]:
    """A JSON object; empty if it is missing or none."""
    return _whole(path, problems, parse_json, "JSON")


def _whole(path: Path, problems: list[str], parse: Callable[[str], Any], kind: str) -> dict[str, Any]:
    text = read_text(path, problems)
    if text is None:
        return {}
    try:
        found = parse(text)
    except ValueError as error:
        problems.append(f"{path.name} is no {kind}, or cut short: {error}")
        return {}
    if not isinstance(found, dict):
        problems.append(f"{path.name} holds no {kind} object")
        return {}
    return found


def read_rows(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """JSON objects, one a line."""
    text = read_text(path, problems) or ""
    rows, lines, bad = [], text.split("\n"), 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _record(line)
        if isinstance(row, dict):
            rows.append(row)
        elif number == len(lines):
            problems.append(f"{path.name}: the last line is cut short and left out")
        else:
            bad += 1
            if bad <= MOST_PROBLEMS:
                problems.append(f"{path.name}: line {number} is no record and left out")
    if bad > MOST_PROBLEMS:
        problems.append(f"{path.name}: so are {bad - MOST_PROBLEMS} more lines")
    return rows


def _record(line: str) -> Any:
    if not line.lstrip().startswith("{"):  # a parser's error takes ten times as long
        return None
    try:
        return parse_json(line)
    except ValueError:
        return None


def read_records(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """A JSON array of objects, as studies write them."""
    text = read_text(path, problems)
    if text is None:
        return []
    try:
        found = parse_json(text)
    except ValueError as error:
        problems.append(f"{path.name} is no JSON, or cut short: {error}")
        return []
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        problems.append(f"{path.name} holds no list of records")
        return []
    return found


def read_table(path: Path, problems: list[str]) -> Columns:
    """A CSV file with a header; lines of another length are left out, and a last one that does not end."""
    text = read_text(path, problems)
    if not text:
        return {}
    if "\n" not in text:
        problems.append(f"{path.name} is cut short, within its header")
        return {}
    try:
        header, *rows = csv.reader(text.split("\n"))
    except (csv.Error, ValueError) as error:
        problems.append(f"{path.name} is no table: {error}")
        return {}
    whole = rows if text.endswith("\n") else rows[:-1]  # a number that is cut short is a number
    kept = [row for row in whole if len(row) == len(header)]
    if lost := sum(bool(row) for row in rows) - len(kept):
        problems.append(f"{path.name}: {lost} of {lost + len(kept)} lines are cut short and left out")
    if len(header) > MOST_COLUMNS:
        problems.append(f"{path.name} has {len(header):,} columns: those after the first {MOST_COLUMNS:,} are left out")
    return {name: _column([row[at] for row in kept]) for at, name in enumerate(header[:MOST_COLUMNS])}


def columns_of(rows: Sequence[Mapping[str, Any]], problems: list[str] | None = None, name: str = "") -> Columns:
    """Records as columns; what a record lacks is nan, or None where the others are not numbers.

    problems: where it is said if there are too many columns. name: of the file that they are of."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    most = min(MOST_COLUMNS, MOST_VALUES // max(1, len(rows)))
    if len(names) > most and problems is not None:
        problems.append(f"{name} has {len(names):,} names in {len(rows):,} records: only {most:,} of them are read")
    return {name: _typed([row.get(name) for row in rows]) for name in names[:most]}


def _column(texts: list[str]) -> np.ndarray:
    kinds: tuple[Callable[[str], int | float], ...] = (int, float)
    for kind in kinds:
        try:
            return _typed([kind(text) if text else None for text in texts])
        except ValueError:
            continue
    return _objects(texts)


def _typed(values: list[Any]) -> np.ndarray:
    if all(value is None or is_number(value) for value in values):
        try:
            whole = values and all(isinstance(value, int) for value in values)
            numbers = [float("nan") if value is None else value for value in values]
            return np.array(numbers, np.int64 if whole else np.float64)
        except OverflowError:  # whole numbers of hundreds of digits
            pass
    return _objects(values)


def _objects(values: Iterable[Any]) -> np.ndarray:
    listed = list(values)
    found = np.empty(len(listed), object)  # np.array() would make a matrix of lists of one length
    for at, value in enumerate(listed):
        found[at] = value
    return found


def is_number(value: Any) -> bool:
    """True and False are none, though Python thinks so; nor are whole numbers that no float can hold."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < _HUGE)
