import io
import os
import socket
import struct
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from unisono.data.sources import load
from unisono.errors import UserError

X = np.arange(24).reshape(8, 3).astype(np.float64)
Y = np.arange(8) % 2
PARTS = {"train_x": X, "train_y": Y, "test_x": X[:3] + 0.5, "test_y": Y[:3]}


def save(directory, arrays, flat):
    for name, array in arrays.items():
        path = directory / ("" if flat else f"{name[:-2]}_data") / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    return str(directory)


@pytest.mark.parametrize("form", ["nested", "flat", "npz"])
def test_the_three_forms_give_the_same(tmp_path, form):
    if form == "npz":
        np.savez(tmp_path / "mine.npz", **PARTS, other=np.zeros(3))
        spec = str(tmp_path / "mine.npz")
    else:
        spec = save(tmp_path / "mine", PARTS, flat=form == "flat")
    dataset = load(spec)
    assert dataset.name == spec
    assert np.array_equal(dataset.train_x, X.astype(np.float32))
    assert (dataset.train_x.dtype, dataset.train_y.dtype) == (np.float32, np.int64)
    assert dataset.train_y.tolist() == Y.tolist()
    assert dataset.test_x.tolist() == (X[:3] + 0.5).tolist()
    assert dataset.validation_x.shape == (0, 3)
    assert dataset.validation_y.shape == (0,)
    assert (dataset.classes, dataset.shape) == (2, (3,))


def test_the_layout_of_subfolders_wins_and_a_part_may_be_missing(tmp_path):
    save(tmp_path, {"train_x": X + 1, "train_y": Y}, flat=True)
    save(tmp_path, {"train_x": X, "train_y": Y}, flat=False)
    dataset = load(str(tmp_path))
    assert dataset.train_x[0, 0] == 0
    assert dataset.test_x.shape == (0, 3)


def test_a_validation_part_of_ones_own(tmp_path):
    spec = save(tmp_path, PARTS | {"validation_x": X[:2], "validation_y": Y[:2]}, flat=True)
    assert load(spec).validation_y.tolist() == [0, 1]


def test_regression_targets_have_two_dimensions(tmp_path):
    spec = save(tmp_path, {"train_x": X, "train_y": X[:, :2] / 7}, flat=True)
    dataset = load(spec)
    assert (dataset.classes, dataset.outputs, dataset.train_y.dtype) == (0, 2, np.float32)


def test_files_that_are_missing_are_listed(tmp_path):
    save(tmp_path, {"train_x": X}, flat=True)
    with pytest.raises(UserError, match=r"not found: .*train_data/train_y\.npy, .*/train_y\.npy\nHINT"):
        load(str(tmp_path))
    save(tmp_path, {"train_y": Y, "test_x": X}, flat=True)
    with pytest.raises(UserError, match="test_x is there, test_y is not"):
        load(str(tmp_path))


def test_names_that_are_missing_in_an_archive_are_listed(tmp_path):
    np.savez(tmp_path / "mine.npz", a=X, b=Y)
    with pytest.raises(UserError, match="train_x and train_y are missing; it holds a, b"):
        load(str(tmp_path / "mine.npz"))


def test_python_objects_are_never_unpacked(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpacked",))

    objects = np.array([Trap()] * 8)
    spec = save(tmp_path, {"train_x": objects, "train_y": Y}, flat=True)
    with pytest.raises(UserError, match=r"train_x\.npy: holds Python objects"):
        load(spec)
    np.savez(tmp_path / "mine.npz", train_x=objects, train_y=Y)
    with pytest.raises(UserError, match=r"mine\.npz: holds Python objects"):
        load(str(tmp_path / "mine.npz"))


@pytest.mark.parametrize("damage", [lambda b: b[:-5], lambda b: b[:20], lambda b: b"", lambda b: b"PK" + b[2:]])
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_damaged_files_are_refused_by_name(tmp_path, damage, form):
    spec = save(tmp_path, PARTS, flat=True)
    path = tmp_path / "train_x.npy"
    if form == "npz":
        path = tmp_path / "mine.npz"
        np.savez_compressed(path, **PARTS)
        spec = str(path)
    whole = path.read_bytes()
    damaged = damage(whole)
    path.write_bytes(damaged if damaged != whole else whole[:80] + b"damage" + whole[86:])
    with pytest.raises(UserError, match=f"{path.name}: damaged, or not a NumPy file"):
        load(spec)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no such file or directory"):
        load(str(tmp_path / "nothing"))
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(UserError, match="neither a directory nor an"):
        load(str(tmp_path / "x.npy"))


def bundle(path, entries, method=zipfile.ZIP_DEFLATED):
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return str(path)


def npy(array):
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def zeros(count):
    """An .npy of that many zero bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (count, 1)})
    return header.getvalue() + bytes(count)


WHOLE = [(f"{name}.npy", npy(array)) for name, array in PARTS.items()]


@pytest.mark.parametrize(
    ("entries", "method", "message"),
    [
        ([*WHOLE, ("train_x.npy", npy(X))], zipfile.ZIP_STORED, "it holds train_x twice"),
        ([*WHOLE, ("train_x", npy(X))], zipfile.ZIP_DEFLATED, "it holds train_x twice"),
        (WHOLE, zipfile.ZIP_BZIP2, "train_x is compressed in a way"),
        (WHOLE, zipfile.ZIP_LZMA, "train_x is compressed in a way"),
        ([("train_x.npy", b"\x93NUMPY")], zipfile.ZIP_STORED, "starts with"),
    ],
)  # fmt: skip
def test_archives_that_numpy_does_not_write(tmp_path, entries, method, message):
    with pytest.raises(UserError, match=rf"mine\.npz: damaged, or not a NumPy file \(.*{message}"):
        load(bundle(tmp_path / "mine.npz", entries, method))


def test_an_encrypted_entry(tmp_path):
    path = bundle(tmp_path / "mine.npz", WHOLE)
    content = bytearray((tmp_path / "mine.npz").read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 8] |= 1
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(UserError, match="train_x is encrypted"):
        load(path)


def test_an_entry_that_says_less_than_it_holds(tmp_path):
    path = tmp_path / "mine.npz"
    bundle(path, WHOLE)
    whole = path.read_bytes()
    place = whole.index(b"PK\x01\x02") + 24
    for declared in (150, 0):
        path.write_bytes(whole[:place] + struct.pack("<I", declared) + whole[place + 4 :])
        with pytest.raises(UserError, match="damaged, or not a NumPy file"):
            load(str(path))


def test_names_of_strangers_are_neither_read_nor_written_to_the_terminal(tmp_path):
    odd = [(f"{number}\x1b[31m.npy", b"") for number in range(27)]
    with pytest.raises(UserError, match=r"it holds '0\\x1b\[31m', .* and 7 others\nHINT") as caught:
        load(bundle(tmp_path / "mine.npz", odd))
    assert "\x1b" not in str(caught.value)


def test_flipped_bytes_of_an_archive_never_give_a_traceback(tmp_path):
    path = tmp_path / "mine.npz"
    bundle(path, WHOLE[:2])
    whole = path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(UserError):
            load(str(path))
            continue
        refused += 1
    assert refused > len(whole) / 3


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "directory"])
@pytest.mark.parametrize("name", ["train_x.npy", "mine.npz", "mine.txt"])
def test_only_regular_files_are_read(tmp_path, monkeypatch, kind, name):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    save(tmp_path, PARTS, flat=True)
    path = Path(name)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    told = "is a directory|is not a regular file|not found"
    if name == "mine.npz" and kind == "directory":
        told = "not found: "  # a directory of .npy files may have any name
    with pytest.raises(UserError, match=told):
        load("." if name == "train_x.npy" else f"./{name}")


def test_a_link_to_data_is_followed(tmp_path):
    np.savez(tmp_path / "mine.npz", **PARTS)
    (tmp_path / "link.npz").symlink_to(tmp_path / "mine.npz")
    assert load(str(tmp_path / "link.npz")).train_x.shape == (8, 3)


def test_an_archive_that_grows_too_much_is_told_how_to_be_saved(tmp_path):
    y = np.zeros(7, np.int64)
    np.savez_compressed(tmp_path / "d.npz", train_x=np.zeros((7, 2 << 20), np.float32), train_y=y)
    with pytest.raises(
        UserError, match=r"bytes are to be unpacked to .*\nHINT: save such data with numpy\.savez"
    ) as told:
        load(str(tmp_path / "d.npz"))
    assert "damaged" not in str(told.value)
