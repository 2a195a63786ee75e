"""What went wrong: records that are missing or damaged, the error that ended a run, the last lines that ranks wrote.

Limits: links are not followed; of a log only the last lines are shown.
"""

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from unisono.files import open_file
from unisono.report.html.blocks import Block, Code, Fold, Section, Text
from unisono.report.run.load import STUDIES, Run

MOST_FILES, MOST_LINES, MOST_BYTES = 16, 40, 8192


def problems(runs: Sequence[Run]) -> Section | None:
    """None, mostly: all records could be read."""
    told = [
        f"{run.name}: {problem}" if len(runs) > 1 else problem
        for run in runs
        for problem in (*run.problems, *_unlike(run))
    ]
    return Section("What could not be read", [Text(line, "warning") for line in told]) if told else None


def _unlike(run: Run) -> list[str]:
    """Studies with records that their command does not write; sections leave these records out."""
    told = []
    for name in STUDIES:
        records = run.studies.get(name, [])
        module: Any = import_module(f"unisono.report.html.sections.{name}")
        if lost := sum(not module.usable(record) for record in records):
            told.append(
                f"{name}.json: {lost} of {len(records)} records are not such as unisono {name} writes, and left out"
            )
    return told


def logs(runs: Sequence[Run]) -> Section | None:
    """Folded: most readers do not need them."""
    blocks: list[Block] = []
    for run in runs:
        whose = f"{run.name}: " if len(runs) > 1 else ""
        if error := run.summary.get("error"):
            blocks.append(Fold(f"{whose}the error that ended the run", [Code(str(error)[-MOST_BYTES:])]))
        blocks += [Fold(f"{whose}{name}", [Code(text)]) for name, text in _tails(run.path / "log") if text]
    return Section("Logs", blocks) if blocks else None


def _tails(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, last lines) of each file. The directory is held open, so no link can take its place meanwhile."""
    if folder.is_symlink():
        yield folder.name, "is a link, which is not followed"
        return
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        with os.scandir(opened) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        for name in names[:MOST_FILES]:
            yield name, _tail(name, opened)
    finally:
        os.close(opened)


def _tail(name: str, folder: int) -> str:
    try:
        with open_file(name, follow_links=False, folder=folder) as file:
            return _last_lines(file)
    except OSError as error:
        return f"not read: {error.strerror}"


def _last_lines(file: BinaryIO) -> str:
    """The last lines of a file that may be large."""
    file.seek(0, 2)
    file.seek(max(0, file.tell() - MOST_BYTES))
    text = file.read(MOST_BYTES).decode(errors="replace")
    return "\n".join(text.splitlines()[-MOST_LINES:])
