"""The user's own arrays: a directory of .npy files, or one .npz.

The one idea: the names say what is what, and Python objects are never unpacked (`npy.py`).

    load_arrays(Path("my-data"))     # train_data/train_x.npy, train_data/train_y.npy, test_data/test_x.npy ...
    load_arrays(Path("my-data"))     # or flat: train_x.npy, train_y.npy, test_x.npy ...
    load_arrays(Path("my.npz"))      # with arrays of these names

Limits: regular files only, read into memory whole. What an .npz is unpacked to is bounded by its length. Validation and
test parts may be missing; other files and names are not looked at.
"""

import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np

from unisono.data.dataset import ARRAYS
from unisono.data.npy import NotNumbers, PythonObjects, read_array
from unisono.data.raw import Raw, collect
from unisono.errors import UserError
from unisono.files import open_file

MOST_UNPACKED, MOST_RATIO = 32 << 20, 100
"""An .npz is unpacked to that many bytes, or so many times its own length, whichever is more."""
_ENCRYPTED = 1


@final
class TooLarge(ValueError):
    """An archive would be unpacked to more than is believed of a file of its length."""


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
        raise UserError(f"{path}: neither a directory nor an .npz file", hint="give the directory that holds the .npy")
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
    others = {_shown(member.filename): np.empty(0) for member in members}  # only to be named, not read
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


def _shown(name: str) -> str:
    """A stranger's name neither writes to the terminal nor fills it."""
    name = name.removesuffix(".npy")
    return name if name.isprintable() and len(name) <= 100 else ascii(name[:100])


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
    told = str(error) or type(error).__name__
    return UserError(f"{path}: damaged, or not a NumPy file ({told})", hint="save it again with numpy.save or savez")
