"""Failover snapshot: the machine that writes the run directory is lost, and another one, which holds all of the run,
saves it.

The one idea: every machine has the whole state, so any of those that are left can write the last snapshot, if the run
directory is on a file system that it sees. None knows which of the others live; all try, one after the other, and
whoever finds that it is done leaves it at that.

    path = save_failover(saver, FailoverPlace("/home/me/runs/mine", "0f3a..."), position)        # empty: it is not here

A directory of the same name need not be the same one, for machines may have nothing in common: whoever writes a run
directory leaves a token there, which the others are told.

Machines may be one round apart: one that has gone further writes once more, so the newest is the furthest.

The machines are those of supervisors (`unisono train --num-nodes`, one task a node) and of ranks under torchrun.

Limits: MPI ends all ranks when a machine is lost. A record of an epoch that the lost machine had not written yet is
lost with it.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from unisono.runs.snapshots.saver import Saver
from unisono.storage.fallback_writer import NotWritten
from unisono.storage.resume import SNAPSHOTS
from unisono.storage.rundir import token_in
from unisono.storage.snapshots.snapshot import listed, verified
from unisono.storage.snapshots.verified_files import Damaged

PATIENCE_S = 20.0
"""For another machine that is writing."""
_LOOK_S = 0.2


@final
@dataclass(frozen=True)
class FailoverPlace:
    """The run directory of another machine: its absolute path, and its token."""

    path: str
    token: str


def save_failover(saver: Saver, failover_place: FailoverPlace, position: int) -> str:
    """Where what round `position` left, or a later one, is saved."""
    folder = Path(failover_place.path) / SNAPSHOTS
    deadline = time.monotonic() + PATIENCE_S
    while token_in(folder.parent) == failover_place.token:  # else it is not here, or somebody has gone on with the run
        if saved := _saved(folder, position):
            return saved
        try:
            return saver.save_last(position, folder)
        except NotWritten:
            if time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_S)
    return ""


def _saved(folder: Path, position: int) -> str:
    """The newest snapshot, if it is whole and not older than that."""
    for path in listed(folder)[:1]:
        with suppress(Damaged):
            if verified(path).position >= position:
                return str(path)
    return ""
