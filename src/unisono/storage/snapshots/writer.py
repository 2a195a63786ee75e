"""Writing a snapshot so that a kill, a full disk or a power cut at any moment leaves the ones before it as they were.

The one idea: a snapshot is made aside (.draft-...), synced, read back, renamed to its name, and never touched again;
it leaves the same way (.removing-...). So what has the name of a snapshot was whole once.

    from unisono.storage.snapshots.writer import write
    write(Path("runs/mine/snapshots"), 120, {"params": {"0.W": w}, "state": {}}, {"epoch": 3}, keep=2)

One writer at a time: flock on .lock, which the kernel drops when its holder dies. What killed writers left is cleared
by the next one.

Limits: a file system with rename and flock (some Lustre mounts lack flock: an error says so). A group is held in memory
once more while it is written. A child forked by another thread during a write holds the lock if the writer is killed.
"""

import hashlib
import io
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError

from unisono.errors import UserError
from unisono.files import check_entry
from unisono.locks import FileLock
from unisono.models.base import Array
from unisono.storage import weights
from unisono.storage.fallback_writer import NotWritten
from unisono.storage.snapshots import manifest as manifests
from unisono.storage.snapshots.disk import REAL, Disk, remove_tree, sync_directory, write_file
from unisono.storage.snapshots.manifest import Manifest, file_name
from unisono.storage.snapshots.snapshot import listed, number_of, verified
from unisono.storage.snapshots.verified_files import Damaged, Record, check_file

_DRAFT, _REMOVING, _LOCK = ".draft-", ".removing-", ".lock"


@final
@dataclass(frozen=True)
class Written:
    """Where the snapshot is; `problems`: what else went wrong (old ones that are damaged or cannot be removed)."""

    path: Path
    problems: list[str] = field(default_factory=list)


def write(
    folder: Path,
    position: int,
    arrays: Mapping[str, Mapping[str, Array]],
    facts: dict[str, Any],
    *,
    keep: int = 2,
    after: Path | None = None,
    within: Path | None = None,
    disk: Disk = REAL,
) -> Written:
    """A new snapshot, durable when this returns; then all are removed that are older than the `keep` newest whole ones.

    `arrays`: group -> name -> array ("params", "state" ...). `folder` is made if only its last part is missing. after:
    another folder, to which it may be moved: there too it will be the newest. within: the run directory of `folder`,
    beneath which nothing may be a link: what is old in there would be removed where it leads to.
    """
    if keep < 2:
        raise UserError(f"--keep is {keep}", hint="give 2 or more: the newest may turn out to be damaged")
    if not 0 <= position < 10**18:
        raise UserError(f"a snapshot's position is {position}", hint="give the number of steps done so far")
    for group in arrays:
        manifests.check_group(group)
    manifests.sealed(Manifest(position, facts, {}))  # a mistake in the facts is said before anything is written
    try:
        with _alone(folder, disk, within):
            problems = _remove(disk, [path for path in folder.iterdir() if path.name.startswith((_DRAFT, _REMOVING))])
            number = 1 + max((number_of(path) for one in (folder, after or folder) for path in listed(one)), default=0)
            path = folder / f"{number:06d}-{position:012d}"
            _make(disk, path, position, arrays, facts)
            return Written(path, problems + _prune(disk, folder, path, keep))
    except OSError as error:
        raise NotWritten(
            f"the snapshot of position {position} cannot be written: {error.filename or folder}: "
            f"{error.strerror or error}",
            hint="earlier snapshots are untouched; make room, or give a directory that you may write to",
            number=error.errno,
        ) from None


def prune(folder: Path, *, within: Path | None = None, disk: Disk = REAL) -> bool:
    """Removes all but the newest whole snapshot, for a disk that is full; whether there was any to remove."""
    with suppress(OSError, NotWritten), _alone(folder, disk, within):
        before = listed(folder)
        _prune(disk, folder, None, keep=1)
        return len(listed(folder)) < len(before)
    return False


def _make(
    disk: Disk, path: Path, position: int, arrays: Mapping[str, Mapping[str, Array]], facts: dict[str, Any]
) -> None:
    draft = path.with_name(f"{_DRAFT}{secrets.token_hex(4)}")
    try:
        disk.mkdir(draft)
        files = {group: _write_group(disk, draft / file_name(group), arrays[group]) for group in arrays}
        write_file(disk, draft / manifests.FILE, manifests.sealed(Manifest(position, facts, files)))
        sync_directory(disk, draft)
        disk.rename(draft, path)
    except BaseException:
        with suppress(OSError):  # the next write tries again
            remove_tree(disk, draft)
        raise
    sync_directory(disk, path.parent)


def _write_group(disk: Disk, path: Path, arrays: Mapping[str, Array]) -> Record:
    memory = io.BytesIO()
    try:
        for name in arrays:
            if not name.isprintable():
                raise Damaged(path, f"holds an array called {name!r}")
        weights.FORMATS[".safetensors"](weights.Weights(arrays, {}), memory)
        with memory.getbuffer() as data:
            record = Record(len(data), hashlib.sha256(data).hexdigest())
            write_file(disk, path, data)
        check_file(path, record)
    except (SafetensorError, Damaged) as error:
        reason = error.reason if isinstance(error, Damaged) else f"{path.name}: {error}"
        raise UserError(
            f"arrays that a snapshot could not give back: {reason}",
            hint=f"give names that can be printed, and types among {', '.join(weights.TYPES)}",
        ) from None
    return record


def _prune(disk: Disk, folder: Path, latest: Path | None, keep: int) -> list[str]:
    """Removes what is older than `keep` whole ones; returns what went wrong. A damaged one does not count."""
    paths, problems, whole = listed(folder), [], 0
    if len(paths) <= keep:
        return []
    while paths and whole < keep:
        path = paths.pop(0)
        try:
            if path != latest:
                verified(path)
            whole += 1
        except Damaged as error:
            problems.append(f"{path}: {error.reason}")
    doomed = []
    for path in paths:
        aside = folder / f"{_REMOVING}{path.name}"
        try:
            disk.rename(path, aside)
            doomed.append(aside)
        except OSError as error:
            problems.append(f"{path} cannot be removed: {error.strerror}")
    return problems + _remove(disk, doomed)


def _remove(disk: Disk, paths: list[Path]) -> list[str]:
    problems = []
    for path in paths:
        try:
            remove_tree(disk, path)
        except OSError as error:
            problems.append(f"{path} cannot be removed: {error.strerror}")
    return problems


@contextmanager
def _alone(folder: Path, disk: Disk, within: Path | None) -> Iterator[None]:
    """Makes the folder, and holds its lock."""
    if within is not None:
        check_entry(folder, "folder", within=within)
    if not folder.is_dir():
        disk.mkdir(folder)
        sync_directory(disk, folder.parent)
    with FileLock(folder / _LOCK, within=within) as lock:
        if not lock.acquire():
            raise NotWritten(
                f"another process is writing a snapshot into {folder}: {lock.describe_holder()}",
                hint=f"give each run a directory of its own; {lock.hint()}",
            )
        try:
            yield
        finally:
            # Closing would not do: a child forked meanwhile has the same lock.
            lock.unlock()
