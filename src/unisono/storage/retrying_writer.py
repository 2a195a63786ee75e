"""RetryingWriter: files of a directory that grow while a run goes on, on a disk that may be full for a while.

The one idea: a disk that is full for an hour must not cost the training. What cannot be written is kept in memory and
written with a later record; a file never ends in half a line. `trouble` and `missing` tell.

    writer = RetryingWriter(Path("runs/mine")); writer.add(1, {"metrics.jsonl": line}, headers={})

Limits: a line is not on the disk before the kernel puts it there, so a machine that loses power may lose some; what is
unwritten lives in memory alone; what was in a directory that was removed is not written again.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import final

from unisono.files import WRONG_KINDS, append_file, write_all, write_file

HINTS = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room within your quota on that disk",
    errno.ENOENT: "the directory was removed or moved: make it again",
    errno.EROFS: "the disk became read-only: look into the system's log, mount it writable",
    errno.EACCES: "make the directory writable again",
    errno.EIO: "the disk or the network to it fails: look into the system's log",
}
"""What helps against an error of the disk."""


def hint_of(error: OSError, usual: str = "make the directory writable again") -> str:
    """What helps against an error of writing a file. usual: if nothing better is known."""
    if error.errno in WRONG_KINDS:
        return "remove it: only regular files are written, never what a link leads to"
    return HINTS.get(error.errno or 0, usual)


@final
class RetryingWriter:
    """Of one directory. `missing` counts in epochs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.error: OSError | None = None
        """Why something could not be written, at the last try; None: all is there."""
        self._headers: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        self._unwritten: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._lacking: list[str] = []

    def add(self, epoch: int, lines: dict[str, str], headers: dict[str, str]) -> None:
        """Lines of an epoch for each file; headers: the first line of those that are made for it."""
        for name, text in lines.items():
            self._unwritten[name] = self._unwritten.get(name, "") + text
            self._since.setdefault(name, epoch)
        self._headers = headers
        self.flush()

    def keep(self, name: str, write: Callable[[], None]) -> None:
        """Calls `write`, which makes the file `name` here; if the disk does not let it, the file is one that lacks."""
        try:
            write()
        except OSError as error:
            self.error = self.error or error
            if name not in self._lacking:
                self._lacking.append(name)
        else:
            if name in self._lacking:  # at an earlier try
                self._lacking.remove(name)

    def cut(self, name: str, kept: Callable[[int, str], bool]) -> None:
        """Drops the lines of a file for which not kept(number, line), and half ones; to go on after the others. An
        `OSError` if that fails."""
        path = self._path / name
        if not path.exists():
            return
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        write_file(path, "".join(line for at, line in enumerate(lines) if line.endswith("\n") and kept(at, line)))
        self._lengths[name] = path.stat().st_size

    @property
    def trouble(self) -> str:
        """What could not be written, why, and what helps; empty if everything is there."""
        if self.error is None:
            return ""
        reason = self.error.strerror or str(self.error)
        place = self.error.filename if self.error.errno in WRONG_KINDS else self._path
        missing = ", ".join(self.missing)
        return f"{place} cannot be written: {reason}; missing: {missing}\nHINT: {hint_of(self.error)}"

    @property
    def missing(self) -> list[str]:
        """The files that lack something."""
        return [f"{name} from epoch {epoch} on" for name, epoch in self._since.items()] + self._lacking

    def flush(self) -> None:
        """Tries again to write what could not be written before."""
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
        path = self._path / name
        with append_file(path) as file:  # network file systems say only when it is closed that there was no room
            size = os.fstat(file.fileno()).st_size
            start = min(size, self._lengths.get(name, 0))
            if start < size:  # left by a write whose failure was told too late, when it was closed
                file.truncate(start)
            data = ((self._headers.get(name, "") if start == 0 else "") + text).encode()
            try:
                write_all(file, data)
            except OSError:
                with suppress(OSError):
                    file.truncate(start) if start else path.unlink()
                raise
        self._lengths[name] = start + len(data)
