"""Rescuing: the machine that writes the run directory is lost, and another one, which holds all of the run, saves it.

The one idea: every machine has the whole state, so any of those that are left can write the last snapshot, if the run
directory is on a file system that it sees. None knows which of the others live; all try, one after the other, and
whoever finds that it is done leaves it at that.

    path = rescue(saver, Path("runs/mine/snapshots"), position)        # empty: the run directory is not here

Machines may be one round apart: one that has gone further writes once more, so the newest is the furthest.

The machines are those of supervisors (`unisono train --num-nodes`, one task a node) and of ranks under torchrun.

Limits: MPI ends all ranks when a machine is lost. A record of an epoch that the lost machine had not written yet is
lost with it.
"""

import time
from contextlib import suppress
from pathlib import Path

from unisono.train.saving import Saver
from unisono.train.snapshots.files import Damaged
from unisono.train.snapshots.finding import listed, verified
from unisono.train.snapshots.writing import NotWritten

PATIENCE_S = 20.0
"""For another machine that is writing."""
_LOOK_S = 0.2


def rescue(saver: Saver, folder: Path, position: int) -> str:
    """Where what round `position` left, or a later one, is saved."""
    if not folder.parent.is_dir():
        return ""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if saved := _saved(folder, position):
            return saved
        try:
            return saver.save_last(position, folder)
        except NotWritten:
            if time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_S)


def _saved(folder: Path, position: int) -> str:
    """The newest snapshot, if it is whole and not older than that."""
    for path in listed(folder)[:1] if folder.is_dir() else []:
        with suppress(Damaged):
            if verified(path).position >= position:
                return str(path)
    return ""
