"""Fallback: what must not be lost is written somewhere, though the disk of its run takes nothing more.

The one idea: first make it safe, then put it where it belongs. If its own folder does not take it, old snapshots of the
run make room; if that does not do, it is written to another file system at once; then its own folder is tried again for
a while, and once that takes it the copy is removed.

    kept = write_with_fallback(lambda folder: save(weights, folder / "w"), Path("runs/mine"), nbytes, make_room, say)
    kept.path, kept.cause                        # where it is, and why it is not in its own folder

Limits: places in memory (/dev/shm) and those that a batch system clears after a job lose it later: so the message says
where it is. While ranks wait for the one that writes, they wait at most `PATIENCE_S` longer.
"""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from unisono.errors import UserError
from unisono.resources import available_bytes

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that has no room."""
PATIENCE_S = 180.0
"""How long a folder is tried again if nothing else took it. Collectives wait for 300 s."""
SAFE_PATIENCE_S = 20.0
"""How long if it is safe elsewhere."""
RETRY_S = 1.0
_ROOM_BYTES = 1 << 20
"""What must be left of another file system, and what names and headers take."""
_MEMORY = Path("/dev/shm")


@final
class NotWritten(UserError):
    """The disk, or another writer, did not let something be written. What was there before is as it was.

    If only the last sync failed the new one is there too, whole, but a power cut may take it. `number`: the error's.
    """

    def __init__(self, message: str, *, hint: str = "", number: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.number = number


@final
@dataclass(frozen=True)
class Place:
    """Where something is; `cause`: why it is not in its own folder, empty if it is."""

    path: Path
    cause: str = ""


def write_with_fallback(
    write: Callable[[Path], Path],
    home: Path,
    nbytes: int,
    make_room: Callable[[], bool],
    say: Callable[[str], None],
) -> Place:
    """write(folder) with `home`, or, if that does not take it, with a folder of the same name elsewhere.

    write: gives the path of what it wrote, or raises `NotWritten`. make_room: whether it removed anything. say: told
    why it takes time. `NotWritten` if it could not be written anywhere.
    """
    try:
        return Place(write(home))
    except NotWritten as error:
        refusal = error
    if refusal.number in FULL and make_room():
        with suppress(NotWritten):
            return Place(write(home))
    made, copy = _write_elsewhere(write, home, nbytes)
    patience_s = PATIENCE_S if copy is None else SAFE_PATIENCE_S
    safe = "no other place takes it" if copy is None else f"it is safe in {copy}"
    cause = refusal.message
    say(f"{cause}; {safe}, and {home} is tried again for {patience_s:g} s")
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        time.sleep(RETRY_S)
        with suppress(NotWritten):
            path = write(home)
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
            return Place(path)
    if copy is None:
        raise refusal
    return Place(copy, cause)


def places(home: Path) -> Iterator[Path]:
    """Folders on other file systems than `home`, the best first."""
    folder = next(one for one in (home, *home.parents, Path("/")) if one.is_dir())
    own = os.stat(folder).st_dev
    around = [parent for parent in folder.resolve().parents if parent != parent.parent]
    nearest = [parent for parent in around if _device(parent) not in (own, None)][:1]
    with suppress(RuntimeError):
        nearest.append(Path.home())
    for place in dict.fromkeys([*nearest, Path(tempfile.gettempdir()), Path("/var/tmp"), _MEMORY]):
        if _device(place) not in (own, None) and os.access(place, os.W_OK | os.X_OK):
            yield place


def _device(place: Path) -> int | None:
    """None: it cannot be looked at, or is not there."""
    with suppress(OSError):
        return os.stat(place).st_dev
    return None


def _write_elsewhere(write: Callable[[Path], Path], home: Path, nbytes: int) -> tuple[Path | None, Path | None]:
    """(the directory that was made for it, where it is); None: no place takes it."""
    for place in places(home):
        with suppress(OSError, NotWritten), ExitStack() as left:
            if _free_bytes(place) < nbytes + _ROOM_BYTES:
                continue
            made = Path(tempfile.mkdtemp(prefix="unisono-kept-", dir=place))
            left.callback(shutil.rmtree, made, ignore_errors=True)
            folder = made / home.resolve().name
            folder.mkdir()
            path = write(folder)
            left.pop_all()
            return made, path
    return None, None


def _free_bytes(place: Path) -> int:
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    return min(free, available_bytes() // 2) if place == _MEMORY else free
