"""The run directory: what a run leaves behind, written as it goes on. A contract: reports and outside tools read it.

recipe.toml (resolved) · metrics.jsonl (a line an epoch) · ranks.csv (a line per epoch and rank: where it ran, its
samples and times, and of the epoch's last step what it contributed to each parameter) · sync_time.csv (the mean over
ranks) · contributions.csv · pushes.csv (asynchronous runs: every push, in order; `--order` takes it) · loss.png ·
energy.json, utilisation.csv (see `runs/energy_monitor.py`) · summary.json · weights.safetensors · log/rank-N.stack ·
.lock (a token, held by the writing process). Units are in names; every number is global unless its name says rank;
numbers that JSON cannot hold (nan, infinities) are null.

    with RunDirectory.make("runs/mine", recipe) as directory: directory.add(record, names); directory.finish(summary)

The one idea: a directory belongs to one run at a time. It is made for it, or gone on with, under a lock; whoever finds
it taken, or full of something else, is told. What its tables hold is in `run_files.py`, how they survive a full disk
in `retrying_writer.py`.

Only the process that started the ranks writes here, except for the weights. Limits: file systems without locks are
trusted; events are not written again when the disk did not take them.
"""

import errno
import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

from unisono.arena.sync.waiting import wait_until
from unisono.errors import UserError
from unisono.files import append_file, expand_user, new_file, remove_drafts, write_all, write_file
from unisono.locks import FileLock
from unisono.locks import token_in as token_of
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.safe_print import shell_word
from unisono.storage.retrying_writer import HINTS, RetryingWriter, hint_of
from unisono.storage.run_files import LIVE_PAGE, LOCK, TABLES, check_run_directory, epoch_of, headers, lines, plain
from unisono.strategies.asynchronous.recorded_order import mark_of

DYING_S = 3.0
"""How long a lock is waited for: ranks that were killed hold their parent's until they are gone."""


@final
class RunDirectory:
    """A directory that was not there before, or was empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights = path / "weights.safetensors"
        self.writer = RetryingWriter(path)
        """How what is written here fares: `error`, `trouble`, `missing`."""
        self._made: list[Path] = []
        self._held: FileLock | None = None
        self._mark = ""
        self._before: dict[str, bytes] = {}
        self._token_before = ""
        self.lacking = 0
        """How many of the epochs before the one that a run goes on with its metrics.jsonl does not have."""
        self.token = secrets.token_hex(8)
        """By which other machines know that a directory of this name, as they see it, is this one."""

    @classmethod
    def make(cls, out: str, recipe: Recipe) -> "RunDirectory":
        """`out`, or a new directory under runs/; never one that holds something. Nothing is left if that fails."""
        path = expand_user(out) if out else Path("runs") / _name(recipe)
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
                        hint=f"it holds a run: go on with --resume {shell_word(str(path))}, or give another directory"
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

        check: called once no other process can write there, before anything is changed.
        """
        with ExitStack() as kept:
            directory = kept.enter_context(cls(expand_user(path)))
            directory._mark = mark_of(recipe)
            check_run_directory(directory.path)
            try:
                directory._lock()
                check()
                remove_drafts(directory.path)
                directory._remember()
                directory._leave_token()
                write_file(directory.path / "recipe.toml", recipe.toml())
                for name in TABLES:
                    directory.writer.cut(name, partial(_stays, epochs, name.endswith(".csv")))
                directory.lacking = directory._count_lacking(epochs)
                (directory.path / "summary.json").unlink(missing_ok=True)
            except OSError as error:
                directory.discard()
                hint = hint_of(error, "make it writable again, or go on with a copy of it")
                where = f"{error.filename}: " if error.filename else ""
                raise UserError(f"--resume {path}: {where}{error.strerror}", hint=hint) from None
            kept.pop_all()
        return directory

    @staticmethod
    def check_unused(path: Path) -> None:
        """A `UserError` if another process writes to a run; what cannot be locked is left to `reopen`."""
        file = expand_user(path) / LOCK
        with suppress(OSError):
            if file.exists():
                with FileLock(file) as lock:
                    _await_free(lock, lock.is_free)

    def _lock(self) -> None:
        """No other process writes here until `release` or the end of this one. On a file that is never replaced."""
        self._held = FileLock(self.path / LOCK)
        try:
            _await_free(self._held, self._held.acquire)
        except UserError:
            self.release()
            raise
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
                raise

    def _leave_token(self, token: str = "") -> None:
        """Other machines are to see it, should this one be lost."""
        assert self._held is not None
        self._held.sign(token or self.token)

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

    def add_event(self, event: dict[str, Any]) -> None:
        """Something that happened to the ranks or to a snapshot, in events.jsonl; not worth stopping for."""
        with suppress(OSError), append_file(self.path / "events.jsonl") as file:
            write_all(file, (json.dumps(plain(event)) + "\n").encode())

    def _create(self, recipe: Recipe) -> None:
        path = self.path
        if path.exists() and any(path.iterdir()):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._made = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        # Two runs that start in the same second may both get here: the file is made by one of them.
        os.close(new_file(path / LOCK, mode=0o600))
        self._made[:0] = [path / "recipe.toml", path / LOCK, path / LIVE_PAGE]
        self._lock()
        self._leave_token()
        write_file(path / "recipe.toml", recipe.toml())

    def _remember(self) -> None:
        for name in ("recipe.toml", "summary.json", *TABLES):
            with suppress(FileNotFoundError):
                self._before[name] = (self.path / name).read_bytes()
        self._token_before = token_in(self.path)

    def _count_lacking(self, epochs: int) -> int:
        try:
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return epochs - len({epoch for line in lines if (epoch := epoch_of(line)) is not None and 1 <= epoch <= epochs})

    def discard(self) -> None:
        """Removes what `make` made, unless there is more in it by now, or gives the run back that `reopen` was to go on
        with; nobody is kept from it any more."""
        for name, content in self._before.items():
            with suppress(OSError):
                write_file(self.path / name, content)
        if self._before and self._held is not None:
            with suppress(OSError):
                self._leave_token(self._token_before)
        self.release()
        for entry in self._made:
            with suppress(OSError):
                entry.rmdir() if entry.is_dir() else entry.unlink()

    def add(self, record: EpochRecord, parameters: list[str]) -> None:
        """One epoch: its metrics; for each rank its times and, for each parameter, what it contributed."""
        self._before.clear()  # from here on there is something new to keep
        added = lines(record, parameters, self._mark)
        self.writer.add(record.metrics["epoch"], added, headers(record, parameters))

    def finish(self, summary: dict[str, Any]) -> None:
        """The outcome, whole or not at all, and what could not be written before."""
        self.writer.flush()
        text = json.dumps(plain(summary), indent=1) + "\n"
        self.writer.keep("summary.json", lambda: write_file(self.path / "summary.json", text))
        remove_drafts(self.path)


def _await_free(lock: FileLock, is_free: Callable[[], bool]) -> None:
    if not wait_until(is_free, DYING_S):
        where = lock.path.parent
        raise UserError(f"{where} is in use by another unisono train: {lock.describe_holder()}", hint=lock.hint())


def _stays(epochs: int, headed: bool, number: int, line: str) -> bool:
    """Whether a line of a table is of an epoch that is not done again, or the header, if it has one; damaged ones are
    neither."""
    epoch = epoch_of(line)
    return headed and number == 0 if epoch is None else epoch <= epochs


def token_in(path: Path) -> str:
    """The token of the process that wrote last in a run directory; empty if there is none."""
    return token_of(path / LOCK)


def _name(recipe: Recipe) -> str:
    parts = [
        Path(name.partition(":")[0]).stem for name in (recipe.model.name, recipe.data.name)
    ]  # either may be a path
    return "-".join([time.strftime("%Y%m%d-%H%M%S"), *parts])
