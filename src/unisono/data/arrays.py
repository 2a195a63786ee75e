"""Arrays from .npy and .npz files: the user's own, and the bundled digits.

The one idea: names say what each array is, and files are never executed. A .npy header is text of a fixed form: one
regular expression takes it apart, so nothing in it can nest, call or grow. Its sizes are compared with the bytes that
follow before memory is allocated. Python objects are refused.

    load_arrays(Path("my-data"))     # train_data/train_x.npy, train_data/train_y.npy, test_data/test_x.npy ...
    load_arrays(Path("my-data"))     # or flat: train_x.npy, train_y.npy, test_x.npy ...
    load_arrays(Path("my.npz"))      # with arrays of these names
    load_digits()                    # 1797 images of 8 x 8 pixels; files/digits.txt says where they come from

Limits: regular files only, read into memory whole; plain types, no records and no text; headers of up to 10,000 bytes,
as in NumPy. How much an .npz may unpack to depends on its length. Validation and test parts may be missing; other
files and names are ignored.
"""

import hashlib
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, final

import numpy as np

from unisono.claimed_shapes import count_elements
from unisono.data.dataset import ARRAYS, Raw, collect
from unisono.errors import UserError
from unisono.files import open_file
from unisono.resources import check_memory
from unisono.safe_print import short_name

_MAGIC = b"\x93NUMPY"
_MOST_HEADER_BYTES = 10_000
_PIECE_BYTES = 1 << 20
_ENTRY = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>\w+)(?P=quote)\s*:\s*"""
    r"""(?:'(?P<text>[^'"]*)'|"(?P<other>[^'"]*)"|(?P<flag>True|False)|\((?P<lengths>[0-9L,\s]*)\))\s*(?:,|\Z)"""
)


@final
class NotNumbers(ValueError):
    """The array holds text, complex numbers, dates or records."""


@final
class PythonObjects(ValueError):
    """The array holds Python objects: reading them would run code from the file."""


def read_array(file: IO[bytes], nbytes: int) -> np.ndarray:
    """The array of an open file, which has `nbytes` from here to its end; what follows the array is not read."""
    dtype, fortran_order, shape, header_bytes = _read_header(file)
    needed, held = count_elements(shape) * dtype.itemsize, nbytes - header_bytes
    numbers = f"{' x '.join(map(str, shape)) or '1'} of {dtype.itemsize} bytes"
    declared = f"its header says {numbers}, {needed:,} in all"
    if needed > held:
        raise ValueError(f"{declared}, but {max(0, held):,} follow")
    check_memory(numbers, needed, "give less data, or end other programs")
    data = np.empty(needed, np.uint8)
    done = 0
    while done < needed:  # in pieces: memory grows with the bytes that arrive, not with the declared size
        piece = file.read(min(_PIECE_BYTES, needed - done))
        if not piece:
            raise ValueError(f"{declared}, but {done:,} follow")
        data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    array = data.view(dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _read_header(file: IO[bytes]) -> tuple[np.dtype, bool, tuple[int, ...], int]:
    """(type, whether in Fortran order, shape, bytes of the header)."""
    start = file.read(8)
    if len(start) < 8 or not start.startswith(_MAGIC) or start[6] not in (1, 2, 3):
        raise ValueError(f"it starts with {start.hex(' ') or 'nothing'}")
    size = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(size), "little")
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"its header has {length:,} bytes; at most {_MOST_HEADER_BYTES:,} are read")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("it ends within its header")
    dtype, fortran_order, shape = _parse(text.decode("latin1"))
    return dtype, fortran_order, shape, 8 + size + length


def _parse(text: str) -> tuple[np.dtype, bool, tuple[int, ...]]:
    """Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"."""
    inner = text.strip()
    entries: dict[str, re.Match[str]] = {}
    if inner.startswith("{") and inner.endswith("}"):
        inner, at = inner[1:-1].rstrip(), 0
        while at < len(inner) and (entry := _ENTRY.match(inner, at)) is not None and entry["key"] not in entries:
            entries[entry["key"]], at = entry, entry.end()
        if at < len(inner):
            entries = {}
    if entries.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError(f"its header is not that of an array of numbers: {text.strip()[:120]!a}")
    flag, lengths = entries["fortran_order"]["flag"], entries["shape"]["lengths"]
    if flag is None or lengths is None:
        raise ValueError(f"its header is not that of an array of numbers: {text.strip()[:120]!a}")
    shape = tuple(int(word.strip().rstrip("L")) for word in lengths.split(",") if word.strip())
    return _type(entries["descr"]["text"] or entries["descr"]["other"] or ""), flag == "True", shape


def _type(text: str) -> np.dtype:
    """Parses "<f4"; a boolean, a whole or a floating-point number."""
    if re.fullmatch(r"[|=<>]?O\d*", text):
        raise PythonObjects("it holds Python objects")
    if not re.fullmatch(r"[|=<>]?[biuf]\d{1,2}", text):
        raise NotNumbers(f"is of type {text[:40]!a}, not numbers")
    try:
        return np.dtype(text)
    except TypeError:
        raise ValueError(f"it is of type {text!a}, which NumPy does not have") from None


MOST_UNPACKED, MOST_RATIO = 32 << 20, 100
"""An .npz is unpacked to that many bytes, or so many times its own length, whichever is more."""
_ENCRYPTED = 1


@final
class TooLarge(ValueError):
    """An archive would unpack to more than is plausible for its length."""


_MALFORMED = (
    ValueError, EOFError, OSError, RuntimeError, LookupError, ArithmeticError, zipfile.BadZipFile, zlib.error,
    struct.error,
)  # fmt: skip
"""What zipfile raises for damaged archives."""


def load_arrays(path: Path) -> Raw:
    """The arrays at `path`; a `UserError` that names the file if one is missing or damaged."""
    if path.is_dir():
        return _load_directory(path)
    if not path.exists():
        raise UserError(f"{path}: there is no such file or directory", hint="is the path right, seen from here?")
    if path.suffix != ".npz":
        raise UserError(
            f"{path}: neither a directory nor an .npz file",
            hint="give the directory that holds the .npy; for a CSV, FILE.py:FUNCTION that returns arrays",
        )
    return Raw(str(path), collect(str(path), _load_npz(path)))


def _load_directory(path: Path) -> Raw:
    candidates = {key: (path / f"{key[:-2]}_data" / f"{key}.npy", path / f"{key}.npy") for key in ARRAYS}
    files = {key: file for key, paths in candidates.items() if (file := next(filter(Path.exists, paths), None))}
    missing = [key for key in ("train_x", "train_y") if key not in files]
    if missing:
        looked = ", ".join(str(file) for key in missing for file in candidates[key])
        raise UserError(f"{path}: not found: {looked}", hint="name the files like that, or give an .npz")
    return Raw(str(path), collect(str(path), {key: _load_npy(file) for key, file in files.items()}))


def _load_npy(path: Path) -> np.ndarray:
    try:
        with open_file(path) as file:
            return read_array(file, os.fstat(file.fileno()).st_size)
    except (ValueError, OSError) as error:
        raise _unreadable(path, error) from None


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            wanted = _wanted(members, os.fstat(file.fileno()).st_size)
            arrays = {name: _load_member(archive, member) for name, member in wanted.items()}
    except _MALFORMED as error:
        raise _unreadable(path, error) from None
    names = (short_name(member.filename.removesuffix(".npy")) for member in members)
    others = {name: np.empty(0) for name in names}  # not read: an error may list the names
    return others | arrays


def _wanted(members: Sequence[zipfile.ZipInfo], nbytes: int) -> dict[str, zipfile.ZipInfo]:
    """The entries to read of an archive that is `nbytes` long; a `ValueError` for what numpy.savez does not write."""
    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name not in ARRAYS:
            continue
        if name in wanted:
            raise ValueError(f"it holds {name} twice")
        if member.flag_bits & _ENCRYPTED:
            raise ValueError(f"{name} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is compressed in a way that numpy.savez_compressed does not use")
        wanted[name] = member
    unpacked, most = sum(member.file_size for member in wanted.values()), max(MOST_UNPACKED, MOST_RATIO * nbytes)
    if unpacked > most:
        raise TooLarge(
            f"{nbytes:,} bytes are to be unpacked to {unpacked:,}; at most {MOST_RATIO} times as many, or "
            f"{MOST_UNPACKED:,}, are unpacked"
        )
    return wanted


def _load_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        array = read_array(file, member.file_size)
        while file.read(1 << 20):  # to the end: only there zipfile compares the checksum
            pass
        return array


def _unreadable(path: Path, error: Exception) -> UserError:
    if isinstance(error, PythonObjects):
        return UserError(
            f"{path}: holds Python objects, which are not unpacked",
            hint="save plain numbers: numpy.save(path, x.astype('float32'))",
        )
    if isinstance(error, TooLarge):
        return UserError(f"{path}: {error}", hint="save such data with numpy.savez, not compressed, or as .npy files")
    if isinstance(error, NotNumbers):
        return UserError(f"{path} {error}", hint="give whole or floating-point numbers: x.astype('float32')")
    if isinstance(error, OSError):
        return UserError(f"{path}: {error.strerror or error}", hint="give a file that you may read")
    reason = str(error) or type(error).__name__
    return UserError(f"{path}: damaged, or not a NumPy file ({reason})", hint="save it again with numpy.save or savez")


DIGITS_FILE = Path(__file__).parent / "files" / "digits.npz"
DIGITS_SHA256 = "9f9511545007507924a2f50e0c043527a264abf1eaf258f47c011dcd701bc895"


def load_digits() -> Raw:
    """The bundled images; a `UserError` if the installation is damaged."""
    try:
        digest = hashlib.sha256(DIGITS_FILE.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{DIGITS_FILE}: {error.strerror}", hint="install unisono again") from None
    if digest != DIGITS_SHA256:
        raise UserError(
            f"{DIGITS_FILE} is damaged: SHA-256 {digest}, expected {DIGITS_SHA256}", hint="install unisono again"
        )
    return Raw("digits", load_arrays(DIGITS_FILE).arrays, classes=10, normalise="unit")
