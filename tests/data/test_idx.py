import gzip
import hashlib
import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.data.image_server import idx_bytes
from unisono.data import idx
from unisono.errors import UserError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_and_gzipped_files_are_read_whatever_their_name(tmp_path, pack):
    path = tmp_path / "images.part"
    path.write_bytes(pack(idx_bytes(IMAGES)))
    found = idx.read(path)
    assert np.array_equal(found.array, IMAGES)
    assert found.nbytes == 16 + 24
    assert found.sha256 == hashlib.sha256(idx_bytes(IMAGES)).hexdigest()


@pytest.mark.parametrize(("code", "kind"), idx.TYPES.items())
def test_every_element_type(tmp_path, code, kind):
    values = np.array([1, 2, 100], kind)
    path = tmp_path / "x"
    path.write_bytes(struct.pack(">BBBBI", 0, 0, code, 1, 3) + values.tobytes())
    assert idx.read(path).array.tolist() == [1, 2, 100]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file: it starts with nothing"),
        (b"<!DOCTYPE html>", "not an idx file: it starts with 3c 21 44 4f"),
        (b"\0\0\x08\x00", "not an idx file"),
        (b"\0\0\x07\x01\0\0\0\0", "not an idx file"),
        (idx_bytes(IMAGES)[:9], "header of 3 dimensions ends too early"),
        (idx_bytes(IMAGES)[:-1], "says 2 x 3 x 4 of 1 bytes, 24 in all, found 23: truncated"),
        (idx_bytes(IMAGES) + b"\0", "24 in all, found more"),
        (b"\0\0\x0e\x03" + b"\xff" * 12, "not believable"),
        (b"\0\0\x08\xff" + bytes(4 * 255), "not believable: an array of 255 dimensions; at most 32 are read"),
        (b"\0\0\x08\x04" + bytes(4) + b"\xff" * 12, "not believable: an array of shape"),
        (struct.pack(">BBBBII", 0, 0, 8, 2, 1 << 13, (1 << 13) + 1), "not believable: at most 67,108,864 are read"),
        (gzip.compress(idx_bytes(IMAGES))[:-8] + bytes(8), "compressed data are damaged .CRC"),
        (gzip.compress(idx_bytes(IMAGES) + bytes(1 << 20)), "24 in all, found more"),
        (gzip.compress(idx_bytes(IMAGES))[:-9], "compressed data end too early: truncated"),
        (b"\x1f\x8b" + b"no" * 20, "compressed data are damaged"),
    ],
)
def test_damaged_files_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        idx.read(path)
    assert str(path) in str(caught.value)
    assert "HINT" in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="missing-one: No such file"):
        idx.read(tmp_path / "missing-one")


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_flipped_byte_never_passes_for_the_same_file(tmp_path_factory, place, value):
    whole = gzip.compress(idx_bytes(IMAGES), mtime=0)
    place %= len(whole)
    damaged = whole[:place] + bytes([value]) + whole[place + 1 :]
    path = tmp_path_factory.getbasetemp() / "flipped"
    path.write_bytes(damaged)
    try:
        found = idx.read(path)
    except UserError:
        return
    assert found.sha256 == hashlib.sha256(idx_bytes(IMAGES)).hexdigest()


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(UserError, match=f"{name}: is not a regular file"):
            idx.read(tmp_path / name)
