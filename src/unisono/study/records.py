"""The study directory: what was run, one line each, as soon as it is over.

study.json (what is studied, where) · cells.jsonl (a line a run) · cells/ (a recipe a cell) · runs/ (a run directory a
run) · the tables and plots that a command writes at its end.

    with Records.open(Path("studies/mine"), "scale", {"grid": "1x1,1x2"}) as records: records.add(record)

The one idea: a line is on the disk before the next run starts, so that an interruption loses what was running and
nothing else; the same command finds the lines and goes on. What is studied is written down, and another study, or the
same on another machine or of other code and data (`inputs.py`), is refused: its times would be compared with times of
something else.

Limits: a study that went on later was not measured in one go; the times of one round may then lie hours apart.
"""

import fcntl
import io
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from unisono.errors import UserError
from unisono.files import open_file
from unisono.parsing import parse_json
from unisono.recipe import Recipe
from unisono.resources import machine
from unisono.study.cells import digest_of
from unisono.study.disk import writing
from unisono.study.record_types import is_record

PLACE = ("host", "cpu", "cores")
"""Of the machine, what makes times comparable."""


@final
class Records:
    """Of one study; nobody else writes to its directory meanwhile."""

    def __init__(self, path: Path, held: io.FileIO) -> None:
        """Use `open`."""
        self.path = path
        self._held = held
        self.all = self._read()
        """Those of earlier commands first, in the order in which they were made."""

    @classmethod
    def open(cls, path: Path, kind: str, studied: Mapping[str, Any]) -> "Records":
        """A new directory, or that of the same study. kind: the command. studied: plain values that tell it apart."""
        path = path.expanduser()
        here = {name: value for name, value in machine().items() if name in PLACE}
        wanted = {"kind": kind, "studied": dict(studied), "machine": here}
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not (path / "study.json").exists() and any(path.iterdir()):
                raise UserError(f"--out {path} holds something that is no study", hint="give another directory")
            held = io.FileIO(path / "study.json", "a+")
        except OSError as error:
            raise UserError(f"--out {path}: {error.strerror}", hint="give a directory that you may write to") from None
        try:
            _lock(held, path)
            _agree(held, wanted, path)
            return cls(path, held)
        except BaseException:
            held.close()
            raise

    def _read(self) -> list[dict[str, Any]]:
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
            os.truncate(file, len(whole))
        try:
            found = [parse_json(line) for line in whole.split(b"\n")[:-1]]
            if not all(map(is_record, found)):
                raise ValueError
            return found
        except ValueError:
            raise UserError(
                f"{file} is damaged: a line is no record", hint="remove that line, or the directory to start anew"
            ) from None

    def add(self, record: Mapping[str, Any]) -> None:
        """On the disk when this returns, or not at all: a `UserError` if there is no room."""
        path = self.path / "cells.jsonl"
        with writing(path), io.FileIO(path, "a") as file:
            length, left = file.seek(0, os.SEEK_END), memoryview(f"{json.dumps(record)}\n".encode())
            try:
                while left:
                    left = left[file.write(left) :]
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


def default_path(kind: str, recipe: Recipe, studied: Mapping[str, Any]) -> Path:
    """The same for the same study, so that the same command finds it again."""
    words = [Path(text.partition(":")[0]).stem for text in (recipe.model, recipe.data)]  # either may be a path
    return Path("studies") / "-".join([kind, *words, digest_of(studied)[:6]])


def _lock(held: io.FileIO, path: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{path} is in use by another study", hint="wait for it to end, or end it first") from None
    except OSError:
        pass  # a file system without locks


def _agree(held: io.FileIO, wanted: dict[str, Any], path: Path) -> None:
    """Writes what is studied, or compares it with what is there."""
    held.seek(0)
    text = held.read()
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
        held.truncate(0)  # a kill in the middle of the only write: nothing was run then
        left = memoryview((json.dumps(wanted, indent=1) + "\n").encode())
        with writing(path / "study.json", after=""):
            while left:
                left = left[held.write(left) :]
            os.fsync(held.fileno())
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
