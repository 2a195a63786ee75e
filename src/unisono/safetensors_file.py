"""The one way to read a safetensors file: weights, snapshots, and those that strangers made.

The one idea: the header is checked whole before an array is made. It is plain JSON of bounded length and depth, names
occur once, shapes are those that NumPy can have, and the arrays fill the rest of the file without gaps or overlaps. So
no memory is taken that the file does not hold, and everything is read through one descriptor.

    with files.open_file("weights.safetensors") as file:
        header = read_header(file)                      # header.tensors["0.W"].shape, header.metadata
        weight = read_tensor(file, header.tensors["0.W"])

What is wrong is a `ValueError` with a plain reason. The format: 8 bytes with the header's length, little endian; the
header, {"name": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}, "__metadata__": {"key": "text"}}; arrays.

Limits: types that NumPy lacks (bfloat16, float8) are listed, and not read.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeGuard, final

import numpy as np

from unisono.claimed_shapes import count_elements
from unisono.parsing import parse_json
from unisono.safe_print import shortened

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
"""Types that are NumPy's and real numbers."""
_OTHER_BITS = {
    "BF16": 16, "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6,
    "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
_BITS = {name: 8 * np.dtype(dtype).itemsize for name, dtype in TYPES.items()} | _OTHER_BITS
MOST_HEADER_BYTES = 100_000_000
"""As in safetensors itself."""
_METADATA = "__metadata__"


@final
class Tensor(NamedTuple):
    """An array in a file: where its bytes begin and end, from the beginning of the file."""

    type_name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@final
@dataclass(frozen=True)
class Header:
    """What a file says that it holds, sorted by name."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


def read_header(file: BinaryIO, most_bytes: int = MOST_HEADER_BYTES) -> Header:
    """The header of an open file, from its beginning; it agrees with the length of the file."""
    nbytes = os.fstat(file.fileno()).st_size
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(nbytes - 8, most_bytes):
        raise ValueError(
            f"says that its header has {length} bytes; the file has {nbytes:,}, and headers of up to "
            f"{most_bytes:,} are read"
        )
    try:
        entries = parse_json(file.read(length), most_bytes=most_bytes, strict=True)
    except ValueError as error:
        raise ValueError(f"has a header that is not plain JSON: {error}") from None
    if not isinstance(entries, dict):
        raise ValueError("is no safetensors file: its header lists no arrays")
    metadata = entries.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("is no safetensors file: its metadata are not texts by name")
    tensors = {name: _tensor(name, entry, 8 + length) for name, entry in entries.items()}
    _check_places(tensors, 8 + length, nbytes)
    return Header(dict(sorted(tensors.items())), metadata)


def read_tensor(file: BinaryIO, tensor: Tensor) -> np.ndarray:
    """The array of an entry of the header, whose type is one of `TYPES`, in memory of its own."""
    data = np.empty(tensor.stop - tensor.start, np.uint8)
    file.seek(tensor.start)
    if file.readinto(data.data) != len(data):  # type: ignore[attr-defined]  # every file on a disk has it
        raise ValueError("is shorter than it was a moment ago")
    return data.view(TYPES[tensor.type_name]).reshape(tensor.shape)


def _tensor(name: str, entry: Any, start: int) -> Tensor:
    told: dict[str, Any] = entry if isinstance(entry, dict) else {}
    kind, shape, offsets = told.get("dtype"), told.get("shape"), told.get("data_offsets")
    bits = _BITS.get(kind) if isinstance(kind, str) else None
    if kind is None or bits is None or not _are_whole(shape) or not _are_whole(offsets) or len(offsets) != 2:
        raise ValueError(f"is no safetensors file: it does not say type, shape and place of {shortened(name)}")
    try:
        count = count_elements(shape)
    except ValueError as error:
        raise ValueError(f"holds {error}: {shortened(name)}") from None
    if (count * bits + 7) // 8 != offsets[1] - offsets[0]:
        found = f"{shortened(name)}, {count:,} times {kind}, has another number of bytes"
        raise ValueError(f"is no safetensors file: {found}")
    return Tensor(kind, tuple(shape), start + offsets[0], start + offsets[1])


def _check_places(tensors: Mapping[str, Tensor], start: int, nbytes: int) -> None:
    """Arrays lie one after the other, from the end of the header to the end of the file."""
    end = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if tensor.start != end:
            where = "there is a gap before" if tensor.start > end else "another array lies in"
            raise ValueError(f"is no safetensors file: {where} {shortened(name)}")
        end = tensor.stop
    if end != nbytes:
        raise ValueError(f"is no safetensors file: it has {nbytes:,} bytes, and its arrays end elsewhere")


def _are_whole(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int for n in value)
