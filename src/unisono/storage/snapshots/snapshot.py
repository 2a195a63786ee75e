"""Snapshots: named arrays and facts about them, each in a directory of its own, found by reading and not by a link.

The one idea: the newest snapshot is the newest that is whole. Every candidate is compared with its manifest, byte by
byte; one that fails is named with its reason, and the one before it is tried.

    from unisono.storage.snapshots.snapshot import newest
    found = newest(Path("runs/mine/snapshots"))       # found.rejected: newer ones that are damaged, and why
    weight = found.require().arrays("params")["0.W"]

    snapshots/000007-000000000120/      the 7th that was written, at position 120
        manifest.json params.safetensors state.safetensors

Newest means written last, whatever the position: a run that fell back and walked the same way again counts. Reading
changes nothing and needs no lock; `writer.py` writes.

Limits: a user who may write the directory may write another whole snapshot. It can hold wrong numbers, never code.
"""

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from unisono.errors import UserError, unknown_name
from unisono.models.base import Array
from unisono.storage.snapshots import manifest as manifests
from unisono.storage.snapshots.manifest import Manifest, file_name
from unisono.storage.snapshots.verified_files import Damaged, check_file, load_file

_NAME = re.compile(r"([0-9]{6,})-([0-9]{12,18})")


@final
@dataclass(frozen=True)
class Snapshot:
    """One that was whole when it was found."""

    path: Path
    manifest: Manifest

    @property
    def position(self) -> int:
        return self.manifest.position

    @property
    def facts(self) -> dict[str, Any]:
        return self.manifest.facts

    @property
    def groups(self) -> list[str]:
        return list(self.manifest.files)

    def arrays(self, group: str) -> dict[str, Array]:
        """Arrays by name, in the order in which they were given; fresh memory, compared once more when it is read."""
        if group not in self.manifest.files:
            raise unknown_name(f"group of {self.path}:", group, self.manifest.files)
        return load_file(self.path / file_name(group), self.manifest.files[group])


@final
class Rejected(NamedTuple):
    """A snapshot that is not whole; `reason` names the file."""

    path: Path
    reason: str


@final
@dataclass(frozen=True)
class SnapshotSearch:
    """The newest whole snapshot, if there is one, and those that are newer but not whole."""

    folder: Path
    snapshot: Snapshot | None
    rejected: list[Rejected]

    def require(self) -> Snapshot:
        """The snapshot; a `UserError` that says why there is none."""
        if self.snapshot is not None:
            return self.snapshot
        if not self.rejected:
            raise UserError(
                f"{self.folder} holds no snapshot",
                hint="nothing was kept so far: start again, in another directory or when this one is removed; "
                "--snapshot-every keeps some",
            )
        told = "\n".join(f"  {path.name}: {reason}" for path, reason in self.rejected)
        raise UserError(
            f"no snapshot in {self.folder} can be used:\n{told}",
            hint="nothing was changed; restore one of them from a copy, or start again",
        )


def newest(folder: Path) -> SnapshotSearch:
    """The snapshot written last that is whole, by reading all of it."""
    rejected: list[Rejected] = []
    try:
        paths = listed(folder)
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}", hint="give the snapshots of a run") from None
    for path in paths:
        try:
            return SnapshotSearch(folder, verified(path), rejected)
        except Damaged as error:
            if not os.path.lexists(path):
                return newest(folder)  # a writer removed it meanwhile, so there are newer ones
            rejected.append(Rejected(path, error.reason))
    return SnapshotSearch(folder, None, rejected)


def require_newest(folder: Path) -> Snapshot:
    """As `newest`; a `UserError` that lists every reason if there is none."""
    return newest(folder).require()


def verified(path: Path) -> Snapshot:
    """The snapshot at `path`, all of it read and compared; `Damaged` if it is not whole."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise Damaged(path, f"cannot be read: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise Damaged(path, "is not a directory")
    manifest = manifests.read(path)
    if manifest.position != int(path.name.partition("-")[2]):
        raise Damaged(path / manifests.FILE, f"is that of position {manifest.position}")
    for group, record in manifest.files.items():
        check_file(path / file_name(group), record)
    return Snapshot(path, manifest)


def listed(folder: Path) -> list[Path]:
    """Whatever has the name of a snapshot, newest first; nothing if there is no such folder."""
    with suppress(FileNotFoundError):
        return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), key=number_of, reverse=True)
    return []


def number_of(path: Path) -> int:
    """How many snapshots were written before it, and it."""
    return int(path.name.partition("-")[0])
