"""Reading files that may be damaged or made by an enemy: every one is suspect until its length and hash are right.

The one idea: nothing is believed before it is compared, and nothing is allocated because a file says so. A file is a
regular one, as long as its record says, with the SHA-256 that its record says, and a header that is plain JSON, or a
`Damaged` says which file and why. What is checked and what is read is one descriptor.

    check_file(path, Record(nbytes=72, sha256="9f86d0..."))
    arrays = load_file(path, record)                        # {"0.W": (64, 10) float32, ...} in the order written

Hashing streams. Limits: a file that is written to between its check and its reading goes unseen.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

from unisono.errors import UserError
from unisono.files import open_file
from unisono.models.base import Array
from unisono.parsing import parse_json
from unisono.safetensors_file import TYPES, read_header
from unisono.storage import weights

MOST_TEXT_BYTES = 1 << 24
"""A manifest or a header that is longer is not ours."""
_REASONS = {
    errno.ENOENT: "is missing", errno.ELOOP: "is a symbolic link", errno.ENXIO: "is not a regular file",
    errno.EISDIR: "is not a regular file",
}  # fmt: skip


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
def plain_file(path: Path) -> Iterator[BinaryIO]:
    """The regular file at `path`, not what a link leads to; whatever goes wrong with it is `Damaged`."""
    try:
        with open_file(path, follow_links=False) as file:
            yield file
    except OSError as error:
        raise Damaged(path, _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror}")) from None


def plain_json(path: Path, text: bytes) -> Any:
    """What `text` of `path` says, if it says it once and in finite numbers."""
    try:
        return parse_json(text, most_bytes=MOST_TEXT_BYTES, strict=True)
    except ValueError as error:
        raise Damaged(path, f"is not plain JSON: {error}") from None


def check_file(path: Path, record: Record) -> None:
    """Reads a safetensors file once, in pieces; returns if it is what was written."""
    with plain_file(path) as file:
        _check(file, path, record)


def load_file(path: Path, record: Record) -> dict[str, Array]:
    """The arrays of a file, checked again, in the order in which they were written."""
    with plain_file(path) as file:
        _check(file, path, record)
        try:
            return weights.load_from(file, path).arrays
        except ValueError as error:
            raise Damaged(path, str(error)) from None


def _check(file: BinaryIO, path: Path, record: Record) -> None:
    found = os.fstat(file.fileno()).st_size
    if found != record.nbytes:
        raise Damaged(path, f"is {found} bytes long; {record.nbytes} were written")
    digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]  # every file on a disk has readinto
    if digest.hexdigest() != record.sha256:
        raise Damaged(path, "does not hold what was written: its SHA-256 is another")
    try:
        header = read_header(file, MOST_TEXT_BYTES)
    except ValueError as error:
        raise Damaged(path, str(error)) from None
    for name, tensor in header.tensors.items():
        if tensor.type_name not in TYPES:
            raise Damaged(path, f"holds {name}, of type {tensor.type_name}")
