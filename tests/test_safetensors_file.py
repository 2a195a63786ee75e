"""What passes here passes in safetensors' own reader, too, with the same arrays; what is refused has a plain reason."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load, save

from unisono.files import open_file
from unisono.safetensors_file import TYPES, Header, read_header, read_tensor

ARRAYS = {
    "0.W": np.arange(39, dtype=np.float32).reshape(13, 3),
    "0.b": np.array(7, np.int64),
    "none": np.zeros((0, 5), np.float16),
    "yes": np.array([True, False, True]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.safetensors"


def read(path) -> tuple[Header, dict[str, np.ndarray]]:
    with open_file(path) as file:
        header = read_header(file)
        return header, {name: read_tensor(file, tensor) for name, tensor in header.tensors.items()}


def same(found, expected):
    return found.keys() == expected.keys() and all(
        (found[name].dtype, found[name].shape, found[name].tobytes()) == (array.dtype, array.shape, array.tobytes())
        for name, array in expected.items()
    )


def test_what_safetensors_writes_is_read(path):
    path.write_bytes(save(ARRAYS, {"order": "any"}))
    header, arrays = read(path)
    assert same(arrays, ARRAYS)
    assert header.metadata == {"order": "any"}
    assert list(arrays) == sorted(ARRAYS)


@pytest.mark.parametrize("kind", TYPES.values())
def test_every_type(path, kind):
    array = np.array([[1, 0, 1]], kind)
    path.write_bytes(save({"a": array}))
    assert same(read(path)[1], {"a": array})


def test_no_flipped_bit_passes_that_safetensors_would_refuse(path):
    whole = save(ARRAYS)
    length = 8 + int.from_bytes(whole[:8], "little")
    refused = 0
    for bit in range(0, 8 * length, 7):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = read(path)[1]
        except ValueError:
            refused += 1
            continue
        assert same(found, load(bytes(damaged)))
    assert refused > length / 2


def made(header, data=b""):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(shape=(1,), offsets=(0, 4), kind="F32"):
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}


SAME = json.dumps(entry())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "header has 0 bytes; the file has 0, and headers of up to 100,000,000 are read"),
        (struct.pack("<Q", 1 << 63) + bytes(24), "header has 9223372036854775808 bytes"),
        (made("[" * 5000), "not plain JSON: nested more deeply than 100 levels"),
        (made('{"a": ' + "[" * 99 + "9" * 5000), "more than 4,300 digits"),
        (made(f'{{"a": {SAME}, "a": {SAME}}}', bytes(4)), "a key occurs twice"),
        (made([1]), "lists no arrays"),
        (made({"__metadata__": {"a": 1}}), "metadata are not texts"),
        (made({"__metadata__": [1]}), "metadata are not texts"),
        (made({"a": entry((1,) * 100)}, bytes(4)), "holds an array of 100 dimensions; at most 32 are read: 'a'"),
        (made({"a": entry((1 << 40, 1 << 40))}, bytes(4)), "holds an array of shape"),
        (made({"a": entry((0, 1 << 60), (0, 0))}), "holds an array of shape"),
        (made({"a": entry((-1, -1))}, bytes(4)), "holds an array of shape"),
        (made({"a": entry((1.0,))}, bytes(4)), "does not say type, shape and place of 'a'"),
        (made({"a": entry((True,))}, bytes(4)), "does not say type, shape and place of 'a'"),
        (made({"a": entry(offsets=(0, 4, 4))}, bytes(4)), "does not say type, shape and place of 'a'"),
        (made({"a": entry(kind="F99")}, bytes(4)), "does not say type, shape and place of 'a'"),
        (made({"a": entry() | {"dtype": []}}, bytes(4)), "does not say type, shape and place of 'a'"),
        (made({"a": None}), "does not say type, shape and place of 'a'"),
        (made({"\x1b" * 500: None}), r"place of '(\\x1b){29}\\x1\.\.\.$"),
        (made({"a": entry((2,))}, bytes(4)), "'a', 2 times F32, has another number of bytes"),
        (made({"a": entry(offsets=(4, 0))}, bytes(4)), "another number of bytes"),
        (made({"a": entry(), "b": entry()}, bytes(4)), "another array lies in 'b'"),
        (made({"a": entry(), "b": entry(offsets=(8, 12))}, bytes(12)), "there is a gap before 'b'"),
        (made({"a": entry(offsets=(-4, 0))}, bytes(4)), "another array lies in 'a'"),
        (made({"a": entry(offsets=(10**4299, 10**4299 + 4))}, bytes(4)), "there is a gap before 'a'"),
        (made({"a": entry()}, bytes(5)), "its arrays end elsewhere"),
        (made({"a": entry()}, bytes(3)), "its arrays end elsewhere"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(path, content, reason):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        read(path)


def test_types_that_numpy_lacks_are_listed(path):
    path.write_bytes(made({"a": entry((2,), kind="BF16")}, bytes(4)))
    with open_file(path) as file:
        assert read_header(file).tensors["a"].type_name == "BF16"


def test_a_file_that_shrinks_while_it_is_read(path):
    path.write_bytes(save({"a": np.zeros(1 << 17)}))
    with open_file(path) as file:
        header = read_header(file)
        path.write_bytes(b"")
        with pytest.raises(ValueError, match="shorter than it was"):
            read_tensor(file, header.tensors["a"])
