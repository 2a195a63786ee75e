import io
import struct

import numpy as np
import pytest

from unisono.data.arrays import PythonObjects, read_array
from unisono.errors import UserError

X = np.arange(39, dtype=np.float32).reshape(13, 3)


def saved(array):
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def made(text, data=b"", version=1):
    header = text.encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + data


def read(content):
    return read_array(io.BytesIO(content), len(content))


@pytest.mark.parametrize("kind", ["?", "i1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<f16"])
@pytest.mark.parametrize("shape", [(), (1,), (0, 7), (3, 1, 5)])
def test_what_numpy_saves_is_read(kind, shape):
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(kind)
    for order in "CF":
        found = read(saved(np.asarray(array, order=order)))
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tolist() == array.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (13, 3), }          \n",
        '{"shape":(13L,3L),"fortran_order":False,"descr":"<f4"}',
        "  {'fortran_order' : False ,\n'shape' : ( 13 , 3 ) , 'descr' : '<f4'}",
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_of_other_writers(text, version):
    assert read(made(text, X.tobytes(), version)).tolist() == X.tolist()


def test_what_follows_the_array_is_not_looked_at():
    assert read(saved(X) + saved(X)).tolist() == X.tolist()


def test_no_flipped_bit_is_more_than_a_reason():
    whole = saved(X)
    length = len(whole) - X.nbytes
    assert length == 128
    reasons = set()
    for bit in range(8 * length):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert read(bytes(damaged)).nbytes <= X.nbytes
        except ValueError as error:
            reasons.add(str(error)[:20])
    assert len(reasons) >= 5


def text_of(shape, kind="'<f4'"):
    return f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"PK\x03\x04 and more", "starts with 50 4b 03 04"),
        (made(text_of("(3, 5)")[:20]), "not that of an array of numbers"),
        (made(text_of("(3, 5)"))[:60], "ends within its header"),
        (made(" " * 10_001, version=2), "its header has 10,001 bytes; at most 10,000 are read"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "header has 4,294,967,295 bytes"),
        (made("(" * 9000, version=2), "not that of an array of numbers"),
        (made("-" * 9000 + "1", version=2), "not that of an array of numbers"),
        (made("{[]: 1}"), "not that of an array of numbers"),
        (made(text_of("(3, -5)")), "not that of an array of numbers"),
        (made(text_of("3")), "not that of an array of numbers"),
        (made(text_of("'3'")), "not that of an array of numbers"),
        (made(text_of("(3,), 'shape': (5,)")), "not that of an array of numbers"),
        (made(text_of("(3 5,)")), "invalid literal"),
        (made(text_of(f"({'9' * 5000},)"), version=2), "digits"),
        (made(text_of(f"({'9' * 400},)")), "2\\*\\*64 or more"),
        (made(text_of("(4294967296, 4294967296, 4294967296)")), "their product at most"),
        (made(text_of("(0, 4294967296, 4294967296)")), "their product at most"),
        (made(text_of(f"({'1, ' * 33})"), bytes(4)), "33 dimensions; at most 32 are read"),
        (made(text_of("(1000000007, 13)"), bytes(40)), "13 of 4 bytes, 52,000,000,364 in all, but 40 follow"),
        (made(text_of("(13, 3)"), X.tobytes()[:-1]), "13 x 3 of 4 bytes, 156 in all, but 155 follow"),
        (made(text_of("(3,)", "'<U7'"), bytes(84)), "is of type '<U7', not numbers"),
        (made(text_of("(3,)", "'|S0'"), bytes(84)), "is of type '|S0', not numbers"),
        (made(text_of("(3,)", "'<i3'"), bytes(84)), "which NumPy does not have"),
        (made(text_of("(3,)", "[('a', '<f4')]"), bytes(84)), "not that of an array of numbers"),
        (made(text_of("(3,)", "'f4,f4'"), bytes(84)), "not numbers"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(content, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        read(content)


def test_objects_are_not_unpacked():
    for kind in ("'|O'", "'O'", "'|O8'"):
        with pytest.raises(PythonObjects):
            read(made(text_of("(1,)", kind), b"cos\nsystem\n(S'exit 1'\ntR."))


def test_more_than_there_is_memory_for(monkeypatch):
    monkeypatch.setattr("unisono.resources.available_bytes", lambda: 100)
    with pytest.raises(UserError, match="13 x 3 of 4 bytes need 156 B of memory, 100 B are available"):
        read(saved(X))


def test_an_end_that_comes_too_early_though_the_length_was_right():
    whole = saved(X)
    with pytest.raises(ValueError, match="156 in all, but 56 follow"):
        read_array(io.BytesIO(whole[:-100]), len(whole))
