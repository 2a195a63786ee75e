"""Reading files that may be damaged or made by an enemy: every one is suspect until its length and hash are right.

The one idea: nothing is believed before it is compared, and nothing is allocated because a file says so. A file is a
regular one, as long as its record says, with the SHA-256 that its record says, and a header that is plain JSON, or a
`Damaged` says which file and why. What is read then goes through safetensors, which runs no code.

    check_file(path, Record(nbytes=72, sha256="9f86d0..."))
    arrays = load_file(path, record)                        # {"0.W": (64, 10) float32, ...} in the order written

Hashing streams. Limits: a file that somebody changes between its check and its reading goes unseen.
"""

import errno
import hashlib
import io
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError, safe_open

from unisono.errors import UserError
from unisono.models.base import Array
from unisono.resources import available_bytes, readable_bytes
from unisono.train import weights

MOST_TEXT_BYTES = 1 << 24
"""A manifest or a header that is longer is not ours."""
_MOST_DIMENSIONS, _MOST_ELEMENTS = 32, 1 << 48
_REASONS = {errno.ENOENT: "is missing", errno.ELOOP: "is a symbolic link"}


@final
class Damaged(UserError):
    """A file of a snapshot is not what was written; `reason` says how."""

    def __init__(self, path: Path, reason: str) -> None:
        # A forged file must not write to the terminal, nor fill it.
        self.reason = "".join(letter if letter.isprintable() else "?" for letter in f"{path.name} {reason}"[:400])
        super().__init__(f"{path.parent}: {self.reason}", hint="nothing can be recovered from it; use another snapshot")


@final
@dataclass(frozen=True)
class Record:
    """What is known of a file that was written."""

    nbytes: int
    sha256: str


@contextmanager
def plain_file(path: Path) -> Iterator[io.FileIO]:
    """The regular file at `path`, not what a link leads to; whatever goes wrong with it is `Damaged`."""
    try:
        # O_NONBLOCK: opening a pipe would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Damaged(path, "is not a regular file")
            with io.FileIO(fd, closefd=False) as file:
                yield file
        finally:
            os.close(fd)
    except OSError as error:
        raise Damaged(path, _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror}")) from None


def plain_json(path: Path, text: bytes) -> Any:
    """What `text` of `path` says, if it says it once and in finite numbers."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entry = dict(pairs)
        if len(entry) < len(pairs):
            raise ValueError("a key occurs twice")
        return entry

    def number(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            raise ValueError(f"{literal} is no number")
        return value

    try:
        return json.loads(text.decode(), object_pairs_hook=once, parse_float=number, parse_constant=number)
    except (ValueError, RecursionError) as error:
        raise Damaged(path, f"is not plain JSON: {error}") from None


def check_file(path: Path, record: Record) -> None:
    """Reads a safetensors file once, in pieces; returns if it is what was written."""
    with plain_file(path) as file:
        found = os.fstat(file.fileno()).st_size
        if found != record.nbytes:
            raise Damaged(path, f"is {found} bytes long; {record.nbytes} were written")
        if hashlib.file_digest(file, "sha256").hexdigest() != record.sha256:
            raise Damaged(path, "does not hold what was written: its SHA-256 is another")
        file.seek(0)
        _check_header(path, file, found)
    try:
        with safe_open(path, "np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a mapping)
                if (kind := tensors.get_slice(name).get_dtype()) not in weights.TYPES:
                    raise Damaged(path, f"holds {name}, of type {kind}")
    except (OSError, SafetensorError) as error:
        raise Damaged(path, f"is no safetensors file: {error}") from None


def load_file(path: Path, record: Record) -> dict[str, Array]:
    """The arrays of a file, checked again, in the order in which they were written."""
    check_file(path, record)
    if record.nbytes > (free := available_bytes()):
        raise UserError(
            f"{path} needs {readable_bytes(record.nbytes)} of memory, {readable_bytes(free)} are available",
            hint="end other processes, or raise the memory limit of the job",
        )
    try:
        return weights.load(path).arrays
    except RecursionError:
        raise Damaged(path, "gives its order in JSON that is nested too deeply") from None


def _check_header(path: Path, file: io.FileIO, nbytes: int) -> None:
    """What safetensors lets pass: a name that occurs twice, and shapes that NumPy cannot have."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(nbytes - 8, MOST_TEXT_BYTES):
        raise Damaged(path, f"says that its header has {length} bytes")
    header = plain_json(path, file.read(length))
    entries = header.values() if isinstance(header, dict) else ()
    for shape in [entry["shape"] for entry in entries if isinstance(entry, dict) and "shape" in entry]:
        # Zeros count as ones: NumPy multiplies the other lengths even if there is nothing in the array.
        if not (
            isinstance(shape, list)
            and len(shape) <= _MOST_DIMENSIONS
            and all(type(n) is int and n >= 0 for n in shape)
            and math.prod(max(n, 1) for n in shape) <= _MOST_ELEMENTS
        ):
            raise Damaged(path, f"holds an array of shape {str(shape)[:100]}")
