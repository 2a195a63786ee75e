"""Reading idx files, the format of MNIST and its relatives, plain or gzipped.

The one idea: the header says how long the file must be, so a truncated, padded or foreign file is refused before a
single number of it is used. Never more than that length is unpacked, and a length that is out of bounds not at all.

    images = read(Path("train-images-idx3-ubyte.gz")).array        # (60000, 28, 28) uint8

The format: two zero bytes, a type code, the number of dimensions, each dimension as a big-endian uint32, the elements
in C order, big-endian.
"""

import gzip
import hashlib
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

import numpy as np

from unisono.claimed_shapes import count_elements
from unisono.errors import UserError
from unisono.files import open_file

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_BYTES = 64 << 20
"""No file of the sets that we know is longer; a header that promises more is not believed."""

_HINT = "get the file again; unisono data fetch does it for mnist and fashion-mnist"


@final
@dataclass(frozen=True, eq=False)
class IdxFile:
    """What an idx file holds. `sha256` is that of the unpacked file, so it does not depend on who compressed it."""

    array: np.ndarray
    nbytes: int
    sha256: str


def read(path: Path) -> IdxFile:
    """The file at `path`; a `UserError` that names it, with what was expected and found, if it is not whole."""
    try:
        with open_file(path) as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not zipped:
                return _read(path, file)
            with gzip.open(file) as unzipped:
                return _read(path, unzipped)
    except EOFError:
        raise UserError(f"{path}: the compressed data end too early: truncated", hint=_HINT) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: the compressed data are damaged ({error})", hint=_HINT) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", hint="is it a file that you may read?") from None


def _read(path: Path, file: BinaryIO | gzip.GzipFile) -> IdxFile:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or start[3] == 0:
        raise UserError(f"{path}: not an idx file: it starts with {start.hex(' ') or 'nothing'}", hint=_HINT)
    dtype, rank = np.dtype(TYPES[start[2]]), start[3]
    sizes = file.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise UserError(f"{path}: the header of {rank} dimensions ends too early: truncated", hint=_HINT)
    shape = struct.unpack(f">{rank}I", sizes)
    try:
        length = count_elements(shape) * dtype.itemsize
    except ValueError as error:
        raise UserError(f"{path}: its header is not believable: {error}", hint=_HINT) from None
    told = f"its header says {' x '.join(map(str, shape))} of {dtype.itemsize} bytes"
    if length > MOST_BYTES:
        raise UserError(f"{path}: {told}, which is not believable: at most {MOST_BYTES:,} are read", hint=_HINT)
    data = file.read(length)
    if len(data) < length:
        raise UserError(f"{path}: {told}, {length} in all, found {len(data)}: truncated", hint=_HINT)
    if file.read(1):  # also makes gzip compare its own checksum
        raise UserError(f"{path}: {told}, {length} in all, found more", hint=_HINT)
    digest = hashlib.sha256(start + sizes)
    digest.update(data)
    array = np.frombuffer(data, dtype).reshape(shape)
    return IdxFile(array, len(start) + len(sizes) + length, digest.hexdigest())
