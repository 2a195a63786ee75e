"""The user's own arrays: a directory of .npy files, or one .npz.

The one idea: the names say what is what, and Python objects are never unpacked (allow_pickle=False).

    load_arrays(Path("my-data"))     # train_data/train_x.npy, train_data/train_y.npy, test_data/test_x.npy ...
    load_arrays(Path("my-data"))     # or flat: train_x.npy, train_y.npy, test_x.npy ...
    load_arrays(Path("my.npz"))      # with arrays of these names

Limits: read into memory whole. Validation and test parts may be missing; other files and names are not looked at.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from unisono.data.dataset import ARRAYS
from unisono.data.raw import Raw, collect
from unisono.errors import UserError


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
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise _unreadable(path, error) from None


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _load_member(archive, name) for name in archive.namelist()}
    # The last two: encrypted, or compressed in a way that Python does not know.
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError) as error:
        raise _unreadable(path, error) from None


def _load_member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    if name.removesuffix(".npy") not in ARRAYS:  # only to be named, not read
        return np.empty(0)
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _unreadable(path: Path, error: Exception) -> UserError:
    if "allow_pickle" in str(error) or "Object arrays" in str(error):
        return UserError(
            f"{path}: holds Python objects, which are not unpacked",
            hint="save plain numbers: numpy.save(path, x.astype('float32'))",
        )
    return UserError(f"{path}: damaged, or not a NumPy file ({error})", hint="save it again with numpy.save or savez")
