"""The run directory: what a run leaves behind, written as it goes on. A contract: reports and outside tools read it.

recipe.toml (resolved) · metrics.jsonl (a line an epoch) · ranks.csv (a line per epoch and rank: where it ran, its
samples and times, and of the epoch's last step what it contributed to each parameter) · sync_time.csv (the mean over
ranks) · contributions.csv · pushes.csv (asynchronous runs: every push, in order; `--order` takes it) · loss.png ·
energy.json, utilisation.csv (see `watching.py`) · summary.json · weights.safetensors · log/rank-N.log · .lock (empty,
held by whoever writes here). Units are in names; every number is global unless its name says rank; numbers that JSON
cannot hold (nan, infinities) are null.

    with RunDirectory.make("runs/mine", recipe) as directory: directory.add(record, names); directory.finish(summary)

The one idea: a disk that is full for an hour must not cost the training. What cannot be written is kept in memory and
written with a later record; a file never ends in half a line. `trouble` and `missing` tell.

Only the process that started the ranks writes here, except for the weights. Limits: a record is not on the disk before
the kernel puts it there, so a machine that loses power may lose some; what is unwritten lives in memory alone; epochs
that were in a directory which somebody removed are not written again.
"""

import csv
import errno
import fcntl
import io
import json
import math
import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.asynchronous.recordings import FIELDS as PUSH_FIELDS
from unisono.strategies.asynchronous.recordings import mark_of
from unisono.strategies.contributions import FIELDS

RANK_FIELDS = ("host", "samples", "compute_s", "sync_s", "wait_s", "data_s", "update_s", "last_steps")
"""Of ranks.csv, after epoch and rank. sync_s = wait_s + update_s; last_steps: steps in which this rank came last."""

LOCK = ".lock"
HINTS = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room within your quota on that disk",
    errno.ENOENT: "the directory was removed or moved: make it again",
    errno.EROFS: "the disk became read-only: look into the system's log, mount it writable",
    errno.EACCES: "make the directory writable again",
    errno.EIO: "the disk or the network to it fails: look into the system's log",
}


@final
class RunDirectory:
    """A directory that was not there before, or was empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights = path / "weights.safetensors"
        self.error: OSError | None = None
        """Why something could not be written, at the last try; None: all is there."""
        self._made: list[Path] = []
        self._headers: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        self._unwritten: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._lacking: list[str] = []
        self._held: io.FileIO | None = None
        self._mark = ""

    @classmethod
    def make(cls, out: str, recipe: Recipe) -> "RunDirectory":
        """`out`, or a new directory under runs/; never one that holds something. Nothing is left if that fails."""
        path = Path(out).expanduser() if out else Path("runs") / _name(recipe)
        number = 1
        while True:
            directory = cls(path)
            directory._mark = mark_of(recipe)
            try:
                directory._create(recipe)
                return directory
            except FileExistsError:
                if out:
                    left = any((path / "snapshots").glob("*/manifest.json"))
                    raise UserError(
                        f"--out {path} exists and is not empty",
                        hint=f"it holds a run: go on with --resume {path}, or give another directory"
                        if left
                        else "give another directory, or remove it",
                    ) from None
                number += 1
                path = Path("runs") / f"{_name(recipe)}-{number}"
            except OSError as error:
                directory.discard()
                broken = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
                hint = HINTS[error.errno or 0] if broken else "give a directory that you may write to"
                raise UserError(f"--out {path}: {error.strerror}", hint=hint) from None

    @classmethod
    def reopen(
        cls, path: Path, epochs: int, recipe: Recipe, check: Callable[[], None] = lambda: None
    ) -> "RunDirectory":
        """That of a run which goes on after `epochs` whole epochs: what was written of later ones is dropped.

        check: called once nobody else can write there, before anything is changed.
        """
        with ExitStack() as kept:
            directory = kept.enter_context(cls(path.expanduser()))
            directory._mark = mark_of(recipe)
            try:
                directory._lock()
                check()
                _replace(directory.path / "recipe.toml", recipe.toml())
                for name in ("metrics.jsonl", "ranks.csv", "sync_time.csv", "contributions.csv", "pushes.csv"):
                    directory._cut(name, epochs)
                (directory.path / "summary.json").unlink(missing_ok=True)
            except OSError as error:
                hint = HINTS.get(error.errno or 0, "make it writable again")
                raise UserError(f"--resume {path}: {error.strerror}", hint=hint) from None
            kept.pop_all()
        return directory

    def _lock(self) -> None:
        """Until `release`, or the end of this process, nobody else writes here. On a file that is never replaced."""
        self._held = io.FileIO(self.path / LOCK, "a+")  # NFS gives the lock only on files opened for writing
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise UserError(
                f"{self.path} is in use by another unisono train", hint="wait for it to end, or end it first"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
                raise

    def release(self) -> None:
        """Others may go on with the run. Leaving the `with` block does it, whatever happened in it."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _cut(self, name: str, epochs: int) -> None:
        path = self.path / name
        if not path.exists():
            return
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and (_epoch_of(line) or 0) <= epochs]
        _replace(path, "".join(kept))
        self._lengths[name] = path.stat().st_size

    def add_event(self, event: dict[str, Any]) -> None:
        """Something that happened to the ranks or to a snapshot, in events.jsonl; not worth stopping for."""
        with suppress(OSError), open(self.path / "events.jsonl", "a") as file:
            file.write(json.dumps(_plain(event)) + "\n")

    def _create(self, recipe: Recipe) -> None:
        path = self.path
        if path.exists() and any(path.iterdir()):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._made = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        # Two runs that start in the same second may both get here: the file is made by one of them.
        (path / LOCK).touch(exist_ok=False)
        self._made[:0] = [path / "recipe.toml", path / LOCK]
        self._lock()
        _replace(path / "recipe.toml", recipe.toml())

    def discard(self) -> None:
        """Removes what `make` made, unless there is more in it by now; nobody is kept from it any more."""
        self.release()
        for entry in self._made:
            with suppress(OSError):
                entry.rmdir() if entry.is_dir() else entry.unlink()

    def log(self, rank: int) -> Path:
        """Where the output of a rank goes."""
        (self.path / "log").mkdir(exist_ok=True)
        return self.path / "log" / f"rank-{rank}.log"

    def add(self, record: dict[str, Any], parameters: list[str]) -> None:
        """One epoch: its metrics; for each rank its times and, for each parameter, what it contributed."""
        for name, text in _lines(record, parameters, self._mark).items():
            self._unwritten[name] = self._unwritten.get(name, "") + text
            self._since.setdefault(name, record["metrics"]["epoch"])
        self._headers = _headers(record, parameters)
        self._flush()

    def finish(self, summary: dict[str, Any]) -> None:
        """The outcome, whole or not at all, and what could not be written before."""
        self._flush()
        text = json.dumps(_plain(summary), indent=1) + "\n"
        self.keep("summary.json", lambda: _replace(self.path / "summary.json", text))

    def keep(self, name: str, write: Callable[[], None]) -> None:
        """Calls `write`, which makes the file `name` here; if the disk does not let it, the file is one that lacks."""
        try:
            write()
        except OSError as error:
            self.error = self.error or error
            self._lacking.append(name)

    @property
    def trouble(self) -> str:
        """What could not be written, why, and what helps; empty if everything is there."""
        if self.error is None:
            return ""
        reason = self.error.strerror or str(self.error)
        hint = HINTS.get(self.error.errno or 0, "make the directory writable again")
        return f"{self.path} cannot be written: {reason}; missing: {', '.join(self.missing)}\nHINT: {hint}"

    @property
    def missing(self) -> list[str]:
        """The files that lack something."""
        return [f"{name} from epoch {epoch} on" for name, epoch in self._since.items()] + self._lacking

    def _flush(self) -> None:
        self.error = None
        for name, text in list(self._unwritten.items()):
            try:
                self._append(name, text)
            except OSError as error:
                self.error = self.error or error
            else:
                del self._unwritten[name], self._since[name]

    def _append(self, name: str, text: str) -> None:
        """All of `text`, or nothing: a full disk takes the half of what it is given before it refuses."""
        path = self.path / name
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            size = os.fstat(fd).st_size
            start = min(size, self._lengths.get(name, 0))
            if start < size:  # left by a write whose failure was told too late, when it was closed
                os.ftruncate(fd, start)
            data = memoryview(((self._headers.get(name, "") if start == 0 else "") + text).encode())
            length = start + len(data)
            try:
                while data:
                    data = data[os.write(fd, data) :]
            except OSError:
                with suppress(OSError):
                    os.ftruncate(fd, start) if start else path.unlink()
                raise
        finally:
            os.close(fd)  # network file systems say only here that there was no room
        self._lengths[name] = length


def _replace(path: Path, text: str) -> None:
    """Makes a file anew, whole or not at all: what was there stays until the new one is on the disk."""
    draft = path.with_name(path.name + ".part")
    try:
        with open(draft, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _epoch_of(line: str) -> int | None:
    """The epoch that a line of one of the tables is about; None for a header."""
    found = re.match(r'(?:\{"epoch": |Epoch )?(\d+)', line)
    return int(found[1]) if found else None


def _headers(record: dict[str, Any], parameters: list[str]) -> dict[str, str]:
    fields = [f"{field}:{name}" for name in parameters for field in FIELDS]
    return {
        "ranks.csv": _row(["epoch", "rank", *RANK_FIELDS, *_others(record), *fields]),
        "pushes.csv": _row(list(PUSH_FIELDS)),
        "sync_time.csv": "Epoch, Sync Time (s)\n",
    }


def _lines(record: dict[str, Any], parameters: list[str], mark: str) -> dict[str, str]:
    """What a record adds to each file; `mark`: of the recipe, in every push."""
    epoch, ranks = record["metrics"]["epoch"], record["ranks"]
    syncs = [entry["wait_s"] + entry["update_s"] for entry in ranks]
    rows, told = "", ""
    for rank, (entry, sync_s, shares) in enumerate(zip(ranks, syncs, record["shares"], strict=True)):
        found = entry | {"sync_s": sync_s}
        values = (found[name] for name in (*RANK_FIELDS, *_others(record)))
        rows += _row([epoch, rank, *values, *(x for row in shares for x in row)])
        each = [f"{name} Contribution = {100 * row[0]:.2f}%" for name, row in zip(parameters, shares, strict=True)]
        told += ", ".join([f"Epoch {epoch}", f"Process {rank}", *each]) + "\n"
    pushes = "".join(_row([epoch, *row, mark]) for row in record.get("pushes", []))
    return ({"pushes.csv": pushes} if pushes else {}) | {
        "metrics.jsonl": json.dumps(_plain(record["metrics"])) + "\n",
        "ranks.csv": rows,
        "sync_time.csv": f"{epoch}, {sum(syncs) / len(syncs):.6f}\n",
        "contributions.csv": told,
    }


def _others(record: dict[str, Any]) -> list[str]:
    """Columns that only some strategies have."""
    return [name for name in record["ranks"][0] if name not in (*RANK_FIELDS, "exchange_s")]


def _row(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _name(recipe: Recipe) -> str:
    parts = [Path(name.partition(":")[0]).stem for name in (recipe.model, recipe.data)]  # either may be a path
    return "-".join([time.strftime("%Y%m%d-%H%M%S"), *parts])
