"""Files of run and study directories with one value replaced by an absurd one, each where a value can be.

    for directory, what in mutated(Path("runs/mine"), Path("scratch")): unisono.load(directory)

Every value of every JSON, JSONL, CSV and TOML file is replaced in turn, in its first record and in all of them.
"""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

VALUES = [
    1e308, -1, 0, 10**400, 2**63, 2**53 + 1, 4095, float("nan"), float("inf"), 0.5, True, None, "", "7", "nan",
    "\x1b[2J\u202e\n\0", "\ud800", "x" * 5000, [], [[], -1, "a", None, 1e308], [1, 2], {}, {"a": {"b": [10**400]}},
]  # fmt: skip
TEXTS = ["1e308", "-1", "0", "9" * 400, "9223372036854775807", "4095", "nan", "inf", "", "x\x1b[2J", '"a,b"', "'"]
TOMLS = [
    "1e308", "-1", "0", "9" * 400, "nan", "inf", "true", '""', '"\\u001b[2J\\u0000"', "[]", "[[1], 'a']", "{a = 1}",
    "2026-01-01",
]  # fmt: skip


def changes(path: Path) -> Iterator[tuple[str, str]]:
    """(what was changed, the text of the file after it)."""
    text = path.read_text()
    if path.suffix == ".json":
        whole = json.loads(text)
        for place in places(whole):
            for value in VALUES:
                yield f"{place} is {value!r}"[:200], json.dumps(replaced(whole, place, value))
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        for name in dict.fromkeys(name for row in rows for name in row):
            for value in VALUES:
                for count in (1, len(rows)):
                    new = [row | {name: value} for row in rows[:count]] + rows[count:]
                    yield f"{name} is {value!r}, {count} times"[:200], "".join(json.dumps(row) + "\n" for row in new)
    elif path.suffix == ".csv":
        head, *rows = csv.reader(io.StringIO(text))
        for at, name in enumerate(head):
            for value in TEXTS:
                for count in (1, len(rows)):
                    new = [[*row[:at], value, *row[at + 1 :]] for row in rows[:count]] + rows[count:]
                    yield f"{name} is {value!r}, {count} times"[:200], table([head, *new])
            yield f"{name} is missing", table([row[:at] + row[at + 1 :] for row in (head, *rows)])
            yield f"{name} occurs twice", table([[*row, row[at]] for row in (head, *rows)])
    elif path.suffix == ".toml":
        for found in re.finditer(r"(?m)^(\w+) = .*$", text):
            for value in TOMLS:
                new = f"{found[1]} = {value}"
                yield new[:200], text[: found.start()] + new + text[found.end() :]


def table(rows: list[list[str]]) -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows(rows)
    return made.getvalue()


def places(value: object, here: tuple = ()) -> Iterator[tuple]:
    """Of every value in a JSON text; of lists the first two entries."""
    yield here
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from places(entry, (*here, name))
    elif isinstance(value, list):
        for at, entry in enumerate(value[:2]):
            yield from places(entry, (*here, at))


def replaced(whole: object, place: tuple, value: object) -> object:
    if not place:
        return value
    made = deepcopy(whole)
    inside = made
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    return made


def mutations(source: Path) -> list[tuple[str, str, str]]:
    """(name of a file, what was changed, its text)."""
    files = sorted(path for path in source.iterdir() if path.suffix in (".json", ".jsonl", ".csv", ".toml"))
    return [(path.name, what, text) for path in files for what, text in changes(path)]


def put(source: Path, target: Path, name: str, text: str) -> Path:
    """A copy of a directory in which one file has another text."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    (target / name).write_bytes(text.encode(errors="surrogatepass"))
    return target
