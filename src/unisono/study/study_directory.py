"""The study directory: a line for each run, as soon as it is over; what happens when the disk is full.

study.json (what is studied, where) · cells.jsonl (a line a run) · cells/ (a recipe a cell) · runs/ (a run directory a
run) · .lock (held by the process that writes here) · the tables and plots that a command writes at its end.

    with Records.open(Path("studies/mine"), "scale", {"grid": "1x1,1x2"}) as records: records.add(record)
    with writing(path): table.write(rows, path, "scale")

The one idea: a line is on the disk before the next run starts, so that an interruption loses what was running and
nothing else; the same command finds the lines and goes on. What is studied is written down, and another study, or the
same on another machine or of other code and data (`provenance.py`), is refused: its times would be compared with times
of something else.

A full disk is no fault of a cell. A run that failed because its directory could not be written gets no line, and the
study ends with one message (`DiskRefused`): once there is room, the same command goes on with that run.

Limits: a study that went on later was not measured in one go; the times of one round may then lie hours apart. If
another disk is full (that of the data, of /tmp), that is a failure of the cell like any other.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from unisono.errors import UserError
from unisono.files import (
    WRONG_KINDS,
    append_file,
    check_entry,
    expand_user,
    is_draft,
    open_file,
    read_file,
    remove_drafts,
    write_all,
    write_file,
)
from unisono.locks import FileLock
from unisono.parsing import parse_json
from unisono.recipe import Recipe
from unisono.resources import machine
from unisono.storage.retrying_writer import HINTS, hint_of
from unisono.study.cells import digest_of
from unisono.study.record_check import is_record, lacking

LOCK = ".lock"
FOLDERS = {"cells", "runs", "jobs"}
ENDINGS = {".json", ".jsonl", ".csv", ".md", ".tex", ".txt", ".svg", ".toml", ".html"}
"""Endings of files that commands write to a study."""
MOST_BYTES = 1 << 26
"""The most that study.json may have."""
PLACE = ("host", "cpu", "cores")
"""Facts of the machine that make times comparable."""
KEPT = "what was finished is kept, and the same command goes on"


@final
class Records:
    """The records of one study; no other process writes to its directory meanwhile."""

    def __init__(self, path: Path, held: FileLock, kind: str) -> None:
        """Use `open`."""
        self.path = path
        self._held = held
        self.all = self._read(kind)
        """Those of earlier commands first, in the order in which they were made."""

    @classmethod
    def open(cls, path: Path, kind: str, studied: Mapping[str, Any]) -> "Records":
        """A new directory, or that of the same study. kind: the command. studied: plain values that tell it apart."""
        path = expand_user(path)
        here = {name: value for name, value in machine().items() if name in PLACE}
        wanted = {"kind": kind, "studied": dict(studied), "machine": here}
        try:
            path.mkdir(parents=True, exist_ok=True)
            _check(path)
            held = FileLock(path / LOCK)
        except OSError as error:
            where = f"{error.filename}: " if error.filename not in (None, str(path)) else ""
            hint = hint_of(error) if error.errno in WRONG_KINDS else "give a directory that you may write to"
            raise UserError(f"--out {path}: {where}{error.strerror}", hint=hint) from None
        try:
            _lock(held, path)
            for folder in (path, path / "cells", path / "jobs"):
                remove_drafts(folder)
            _agree(wanted, path)
            return cls(path, held, kind)
        except BaseException:
            held.close()
            raise

    def _read(self, kind: str) -> list[dict[str, Any]]:
        """The lines that are whole; what follows them is cut off, so that the next one starts a line."""
        file = self.path / "cells.jsonl"
        try:
            with open_file(file, follow_links=False) as opened:
                data = opened.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}", hint="give another directory") from None
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with append_file(file) as end:
                end.truncate(len(whole))
        return [_record_of(line, f"{file}, line {at}", kind) for at, line in enumerate(whole.split(b"\n")[:-1], 1)]

    def add(self, record: Mapping[str, Any]) -> None:
        """On the disk when this returns, or not at all: a `UserError` if there is no room."""
        path = self.path / "cells.jsonl"
        with writing(path), append_file(path) as file:
            length = file.tell()
            try:
                write_all(file, f"{json.dumps(record)}\n".encode())
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    file.truncate(length)
                raise
        self.all.append(dict(record))

    def clear(self, run: str) -> Path:
        """Where a run may write: what one that was interrupted left there is removed."""
        path = self.path / run
        with writing(path):
            check_entry(path, "folder", within=self.path)
            if path.exists():
                shutil.rmtree(path)
        return path

    def close(self) -> None:
        """Others may go on with it."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _record_of(line: bytes, where: str, kind: str) -> dict[str, Any]:
    """A line of cells.jsonl; a `UserError` if it is none of such a study's."""
    try:
        found = parse_json(line)
        why = "" if is_record(found) else "it is no record"
        if missing := "" if why else lacking(found, kind):
            why = f"a record without {missing}"
    except ValueError:
        why = "it is no record"
    if why:
        raise UserError(f"{where} is damaged: {why}", hint="remove that line, or the directory to start anew")
    return found  # type: ignore[no-any-return]


def default_path(kind: str, recipe: Recipe, studied: Mapping[str, Any]) -> Path:
    """The same for the same study, so that the same command finds it again."""
    words = [
        Path(text.partition(":")[0]).stem for text in (recipe.model.name, recipe.data.name)
    ]  # either may be a path
    return Path("studies") / "-".join([kind, *words, digest_of(studied)[:6]])


def _check(path: Path) -> None:
    """A `UserError` if the directory is no study's; an `OSError` if something in it is a link, a pipe or a device."""
    names = {name for name in os.listdir(path) if name != LOCK and not is_draft(name)}
    if names and "study.json" not in names:
        raise UserError(f"--out {path} holds something that is no study", hint="give another directory")
    for name in sorted(names | {LOCK}):
        kind = "folder" if name in FOLDERS else "file" if name == LOCK or Path(name).suffix in ENDINGS else ""
        check_entry(path / name, kind)


def _lock(held: FileLock, path: Path) -> None:
    with suppress(OSError):  # a file system without locks
        if not held.acquire():
            raise UserError(f"{path} is in use by another study: {held.describe_holder()}", hint=held.hint())


def _agree(wanted: dict[str, Any], path: Path) -> None:
    """Writes what is studied, or compares it with what is there."""
    text = b""
    with suppress(FileNotFoundError):
        text = read_file(path / "study.json", MOST_BYTES, follow_links=False)
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        if _has_records(path):
            raise UserError(
                f"{path / 'study.json'} is damaged, and there are runs in cells.jsonl: what of, nobody can tell",
                hint="put that file back, or give another directory",
            )
        with writing(path / "study.json", after=""):  # one that is damaged: nothing was run
            write_file(path / "study.json", json.dumps(wanted, indent=1) + "\n")
        return
    for name in ("kind", "studied", "machine"):
        if found.get(name) != wanted[name]:
            there, here = _difference(found.get(name), wanted[name])
            raise UserError(
                f"--out {path} holds another study: {name} is {there} there, {here} here",
                hint="give another directory, or repeat the command that began it",
            )


def _has_records(path: Path) -> bool:
    file = path / "cells.jsonl"
    return file.exists() and file.stat().st_size > 0


def _difference(there: Any, here: Any) -> tuple[str, str]:
    """The first entry that differs, as far down as both have entries."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        told = [side if isinstance(side, str) else json.dumps(side) for side in (there, here)]
        return told[0][:60], told[1][:60]
    name = next(name for name in (*there, *here) if there.get(name) != here.get(name))
    inner = _difference(there.get(name), here.get(name))
    return f"{name} {inner[0]}", f"{name} {inner[1]}"


@final
class DiskRefused(UserError):
    """The disk of the study refused a write, or an entry that is no regular file is in the way."""


@contextmanager
def writing(path: Path, after: str = KEPT) -> Iterator[None]:
    """Within it, an error of the disk is a `DiskRefused`. path: what is written, if the error does not say it."""
    try:
        yield
    except OSError as error:
        if error.errno not in HINTS and error.errno not in WRONG_KINDS:
            raise  # an error of something else: a process, a pipe
        raise _refusal(f"{error.filename or path} cannot be written: {error.strerror}", error, after) from None


def end_if_refused(record: Mapping[str, Any], run: Path) -> None:
    """A `UserError` if a run failed because the disk did not take what it wrote to its directory."""
    for number in HINTS:
        for line in record.get("error", "").splitlines():
            if os.strerror(number) in line and run.name in line:
                raise _refusal(line.removeprefix("unisono: "), OSError(number, ""), KEPT)


def _refusal(what: str, error: OSError, after: str) -> DiskRefused:
    kept = after and error.errno != errno.ENOENT  # what was removed was not kept
    return DiskRefused(what, hint=f"{hint_of(error)}; {after}" if kept else hint_of(error))
