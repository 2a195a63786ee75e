"""The one module that opens files for writing, and the one way to read a file that somebody else may have made.

The one idea: a path is opened once, checked through its descriptor, and used through that. Pipes and devices are
refused, so nothing waits and nothing is endless. Links are refused for everything that is written, and for what is read
inside a run directory: a stranger's run must neither change a file of yours nor copy one into a report.

    write_file(Path("runs/mine/summary.json"), text)                  # whole or not at all
    with append_file(Path("runs/mine/events.jsonl")) as file: file.write(line)
    with lock_file(Path("runs/mine/.lock")) as file: fcntl.flock(file, fcntl.LOCK_EX)        # `locks.py`
    text = read_file(Path("recipe.toml"), most_bytes=1 << 20)

What goes wrong is an `OSError` with a plain `strerror` and the file's name. Limits: a process that is killed while it
writes leaves its draft, until `remove_drafts`. A program that changes a directory while we
write there can still make us fail, but cannot lead us out of it.
"""

import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from unisono.errors import UserError

WRONG_KINDS = frozenset((errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR))
"""Errors of what is there but is no regular file, or no directory, of its own."""
Content = bytes | memoryview | str | Callable[[BinaryIO], None]
"""What a file is to hold, or a function that writes it. Text is written as UTF-8, surrogates escaped."""

_PIECE_BYTES = 1 << 24
_DRAFT = re.compile(r"\..*\.[0-9a-f]{16}\.part")
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK, _IRREGULAR = "is a link, which is not followed", "is not a regular file"
_DIRECTORY, _NO_DIRECTORY = "is a directory", "is not a directory"
_CHECKED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would wait for its other end


def expand_user(path: Path | str) -> Path:
    """With ~ and ~name as home directories; a `UserError` if there is none. (`Path.expanduser` has a RuntimeError.)"""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        raise UserError(
            f"{path}: there is no home directory {Path(found).parts[0]}",
            hint="set HOME, or give a path without ~",
        )
    return Path(found)


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is that of a directory, or of something in it; both absolute. Of no directory (empty): False."""
    return bool(folder) and (path == folder or path.startswith(folder.rstrip("/") + "/"))


def open_file(path: Path | str, *, follow_links: bool = True, folder: int | None = None) -> BinaryIO:
    """A regular file, to be read. folder: a descriptor of the directory that a relative path starts from."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    return open(_regular(os.fspath(path), flags, folder), "rb")


def read_file(path: Path | str, most_bytes: int, *, follow_links: bool = True, folder: int | None = None) -> bytes:
    """The whole of a regular file; an error with errno EFBIG if it is longer than `most_bytes`."""
    with open_file(path, follow_links=follow_links, folder=folder) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"is longer than the {most_bytes:,} bytes that are read of such a file", str(path))
    return data


@contextmanager
def open_folder(path: Path, *, within: Path | None = None) -> Iterator[int]:
    """The descriptor of a directory. within: no part of the path beneath that directory may be a link."""
    start = within or path
    fd = os.open(start, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.relative_to(start).parts:
            below = _folder(part, fd, path)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def make_folder(path: Path, *, within: Path | None = None) -> None:
    """Makes a directory unless there is one. The directory that it lies in exists; see `open_folder` for `within`."""
    with open_folder(path.parent, within=within) as parent:
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=parent)
        os.close(_folder(path.name, parent, path))


def write_file(
    path: Path, content: Content, *, within: Path | None = None, durable: bool = True, mode: int = 0o666
) -> None:
    """Makes a file anew, whole or not at all: what was there stays until the new one is complete.

    within: no directory of the path beneath that one may be a link. durable: on the disk when this returns. A link, a
    pipe, a device or a directory of that name is refused.
    """
    with open_folder(path.parent, within=within) as folder:
        _check_kind(path, folder, "file")
        with _drafted(path, folder, content, durable, mode) as draft, naming(path):
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        if durable:
            sync_folder(folder, path.parent)


def create_file(
    path: Path, content: Content = b"", *, within: Path | None = None, durable: bool = False, mode: int = 0o666
) -> None:
    """Makes a file that must not exist yet; `FileExistsError` otherwise. Nothing is left if it cannot be written.

    Nobody sees it before it is complete, but on file systems without hard links.
    """
    with open_folder(path.parent, within=within) as folder:
        with _drafted(path, folder, content, durable, mode) as draft:
            try:
                with naming(path):
                    os.link(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                    raise
                _create_in_place(path, folder, content, durable, mode)
        if durable:
            sync_folder(folder, path.parent)


def new_file(path: Path, *, within: Path | None = None, mode: int = 0o666) -> int:
    """The descriptor of a file that must not exist yet, for writing."""
    with open_folder(path.parent, within=within) as folder:
        return _new(path, folder, mode)


def append_file(path: Path, *, within: Path | None = None) -> io.FileIO:
    """A file to add to, unbuffered; made if it is missing.

    One with a second name (a hard link, such as a backup makes) is copied first: the other one stays as it is.
    """
    with open_folder(path.parent, within=within) as folder, naming(path):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CHECKED
        fd = _regular(path.name, flags, folder)
        if os.fstat(fd).st_nlink > 1:
            os.close(fd)
            with open_file(path.name, follow_links=False, folder=folder) as shared:
                write_file(path, lambda file: shutil.copyfileobj(shared, file), within=within)
            fd = _regular(path.name, flags, folder)
        return io.FileIO(fd, "ab")


def write_all(file: io.FileIO, data: bytes | memoryview) -> None:
    """All of it: an unbuffered file may take a part, as a disk does that becomes full."""
    left = memoryview(data)
    while left:
        left = left[os.write(file.fileno(), left) :]


def lock_file(path: Path, *, within: Path | None = None) -> io.FileIO:
    """A file to be locked, for reading and writing (else NFS gives no lock); made if it is missing.

    Only its owner may open it: a reader could hold the lock as well.
    """
    with open_folder(path.parent, within=within) as folder, naming(path):
        fd = _regular(path.name, os.O_RDWR | os.O_CREAT | _CHECKED, folder, 0o600)
        if os.fstat(fd).st_nlink == 1:  # else it has a second name, outside, where it stays as it is
            with suppress(OSError):  # one that is not ours, or a file system without modes
                os.fchmod(fd, 0o600)
        return io.FileIO(fd, "r+")


def move_file(old: Path, new: Path) -> None:
    """Gives a complete file another name in its directory; what has that name is replaced, if it is a regular file."""
    with open_folder(new.parent) as folder, naming(new):
        _check_kind(new, folder, "file")
        os.replace(old.name, new.name, src_dir_fd=folder, dst_dir_fd=folder)


def check_entry(path: Path, kind: str = "", *, within: Path | None = None) -> None:
    """An error, one of `WRONG_KINDS`, if this is a link, a pipe or a device, or not of its kind. It may be missing.

    kind: "file" or "folder"; empty: either.
    """
    with suppress(FileNotFoundError), open_folder(path.parent, within=within) as folder:
        _check_kind(path, folder, kind)


def is_draft(name: str) -> bool:
    """Whether a file of this name is what `write_file` writes first; a killed writer leaves it."""
    return _DRAFT.fullmatch(name) is not None


def remove_drafts(path: Path) -> None:
    """Removes what killed writers left in a directory; whoever is alive holds a lock on its draft."""
    with suppress(OSError), open_folder(path) as folder:
        for name in filter(is_draft, os.listdir(folder)):
            with suppress(OSError), open_file(name, follow_links=False, folder=folder) as draft:
                fcntl.flock(draft, fcntl.LOCK_SH | fcntl.LOCK_NB)  # NFS locks no reader exclusively
                os.unlink(name, dir_fd=folder)


def sync_folder(folder: int, path: Path, fsync: Callable[[int], None] = os.fsync) -> None:
    """The names in a directory are on the disk when this returns."""
    try:
        fsync(folder)
    except OSError as error:
        # Some network file systems cannot, and say so; there a rename is durable by itself or not at all.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of calls with a descriptor names no file, or the draft: name the file that was asked for."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _drafted(path: Path, folder: int, content: Content, durable: bool, mode: int) -> Iterator[str]:
    """The name of a draft that is complete; it goes when the block is left, if it still has that name."""
    start = os.fsencode(path.name)[:200].decode("utf-8", "ignore")  # file systems take names of 255 bytes
    draft = f".{start}.{secrets.token_hex(8)}.part"
    with naming(path):
        fd = os.open(draft, os.O_WRONLY | _NEW, mode, dir_fd=folder)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _fill(fd, path, content, durable)
        yield draft
    finally:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)


def _create_in_place(path: Path, folder: int, content: Content, durable: bool, mode: int) -> None:
    fd = _new(path, folder, mode)
    try:
        _fill(fd, path, content, durable)
    except BaseException:
        with suppress(OSError):
            os.unlink(path.name, dir_fd=folder)
        raise


def _fill(fd: int, path: Path, content: Content, durable: bool) -> None:
    with naming(path), open(fd, "wb") as file:
        if callable(content):
            content(file)
        else:
            data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
            view = memoryview(data).cast("B")
            for start in range(0, len(view), _PIECE_BYTES):
                file.write(view[start : start + _PIECE_BYTES])
        file.flush()
        if durable:
            os.fsync(fd)


def _folder(name: str, parent: int, path: Path) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            link = stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
            reason = _LINK if link else _NO_DIRECTORY
            raise OSError(error.errno, reason, str(path)) from None
        raise OSError(error.errno, error.strerror, str(path)) from None


def _regular(path: str, flags: int, folder: int | None, mode: int = 0o666) -> int:
    try:
        fd = os.open(path, flags, mode, dir_fd=folder)
    except ValueError:  # a zero byte, or a half of a surrogate pair
        raise OSError(errno.EINVAL, "is no name that a file can have", path) from None
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, _LINK, path) from None
        if error.errno == errno.EISDIR:
            raise IsADirectoryError(errno.EISDIR, _DIRECTORY, path) from None
        if error.errno == errno.ENXIO:  # writing to a pipe that nobody reads; a socket
            raise OSError(errno.ENXIO, _IRREGULAR, path) from None
        raise
    kind = os.fstat(fd).st_mode
    if not stat.S_ISREG(kind):
        os.close(fd)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, _DIRECTORY, path)
        raise OSError(errno.ENXIO, _IRREGULAR, path)
    return fd


def _new(path: Path, folder: int, mode: int) -> int:
    with naming(path):
        return os.open(path.name, os.O_WRONLY | _NEW, mode, dir_fd=folder)


def _check_kind(path: Path, folder: int, kind: str) -> None:
    with suppress(FileNotFoundError):
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, _LINK, str(path))
        if stat.S_ISDIR(found.st_mode):
            if kind == "file":
                raise IsADirectoryError(errno.EISDIR, _DIRECTORY, str(path))
        elif not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENXIO, _IRREGULAR, str(path))
        elif kind == "folder":
            raise NotADirectoryError(errno.ENOTDIR, _NO_DIRECTORY, str(path))
