"""FileLock: a file that one process at a time holds, and who that is.

The one idea: the kernel keeps the lock (flock) and drops it when its holder is gone; the file only says who that is, to
those who find it taken. It begins with a token, which means something to its owner alone.

    lock = FileLock(Path("runs/mine/.lock"))
    if not lock.acquire(): raise UserError(f"runs/mine is in use: {lock.describe_holder()}", hint=lock.hint())

Children of the holder hold it as well, until they end or it is unlocked.
Limits: who holds it is known on this machine, if /proc tells; of another machine, what its process has written there.
"""

import errno
import fcntl
import io
import os
import platform
import pwd
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, final

from unisono.files import lock_file, read_file, write_file

_MOST_BYTES = 1 << 10
_NO_TOKEN = "-"


@final
class FileLock:
    """Opened, and not yet held. An `OSError` if it cannot be opened, which says whose it is."""

    def __init__(self, path: Path, *, within: Path | None = None) -> None:
        self.path, self._within = path, within
        try:
            self._file: io.FileIO = lock_file(path, within=within)
        except PermissionError as error:
            if owner := _other_owner(path):
                told = f"belongs to user {owner}, and only its owner may lock it"
                raise PermissionError(errno.EPERM, told, str(path)) from None
            raise error from None

    def acquire(self) -> bool:
        """Tries once; False: somebody else holds it. An `OSError` where the file system has no locks."""
        if not self._flock():
            return False
        if not self._has_one_name() and not self._make_anew():
            return False
        with suppress(OSError):
            self.sign(_first_word(self._content()))
        return True

    def _flock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _make_anew(self) -> bool:
        """The file has a second name, as in a backup by hard links, and what is written must not show there: it is
        replaced by a copy. Or another process has just done that: then the lock is that of the new one."""
        content = self._content()
        with self._file:
            if self._is_at_path():
                write_file(self.path, content, within=self._within, durable=False, mode=0o600)
            self._file = lock_file(self.path, within=self._within)
        return self._flock() and self._has_one_name()

    def _has_one_name(self) -> bool:
        return self._is_at_path() and os.fstat(self._file.fileno()).st_nlink == 1

    def _is_at_path(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self._file.fileno()))
        return False

    def is_free(self) -> bool:
        """Whether nobody holds it at this moment; nothing is written."""
        if not self._flock():
            return False
        self.unlock()
        return True

    def sign(self, token: str = "") -> None:
        """Writes the token, and who we are; on the disk when this returns, where that is possible."""
        text = f"{token or _NO_TOKEN} {platform.node() or '?'} {os.getpid()}\n".encode()
        self._file.seek(0)
        self._file.write(text)
        self._file.truncate(len(text))
        with suppress(OSError):
            os.fsync(self._file.fileno())

    def describe_holder(self) -> str:
        """Which process holds which file, as far as is known, for a message."""
        pid, words = self._holding_pid(), self._content().split()
        if pid is not None:
            holder = _described(pid)
        elif len(words) == 3 and words[2].isdecimal() and words[1].isprintable():
            holder = f"process {words[2]} on {words[1]}"
        else:
            holder = "an unknown process"
        return f"{holder} holds {self.path}"

    def hint(self) -> str:
        """What helps whoever finds it taken."""
        pid = self._holding_pid()
        if pid is not None and _user(pid) not in (None, os.geteuid()):
            return (
                f"that is another user's process: {self.path} could be read by others, as earlier versions made it; "
                "ask them to end it, or go on with a copy of the directory"
            )
        return "wait for it to end, or end it first"

    def unlock(self) -> None:
        """Also for children that were forked meanwhile."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _content(self) -> str:
        with suppress(OSError):
            return os.pread(self._file.fileno(), _MOST_BYTES, 0).decode(errors="replace")
        return ""

    def _holding_pid(self) -> int | None:
        """Lines of /proc/locks: `1: FLOCK  ADVISORY  WRITE 30482 fe:00:5965293 0 EOF`."""
        found = os.fstat(self._file.fileno())
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with suppress(OSError), open("/proc/locks") as locks:
            for words in map(str.split, locks):
                if len(words) > 5 and words[1] == "FLOCK" and words[5] == place and words[4].isdecimal():
                    return int(words[4]) or None  # 0: a process of another name space
        return None


def token_in(path: Path) -> str:
    """The token of a lock file; empty if it has none."""
    with suppress(OSError):
        return _first_word(read_file(path, _MOST_BYTES, follow_links=False).decode(errors="replace"))
    return ""


def _first_word(content: str) -> str:
    words = content.split()
    return words[0] if words and words[0] != _NO_TOKEN else ""


def _user(pid: int) -> int | None:
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid
    return None


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _described(pid: int) -> str:
    user, command = _user(pid), ""
    if user is None:
        return f"a child of process {pid}, which has ended,"
    with suppress(OSError), open(f"/proc/{pid}/comm", errors="replace") as file:
        command = "".join(letter for letter in file.read(100) if letter.isprintable())
    whose = "" if user == os.geteuid() else f" of user {_name(user)}"
    return f"process {pid}{f' ({command})' if command else ''}{whose}"


def _other_owner(path: Path) -> str:
    """Empty: it is ours, or not there."""
    with suppress(OSError):
        user = os.stat(path, follow_symlinks=False).st_uid
        return _name(user) if user != os.geteuid() else ""
    return ""
