"""Reading .npy files, and those inside an .npz: arrays of numbers, never Python objects.

The one idea: the header is text of a fixed form, taken apart by one regular expression and not evaluated as Python, so
that nothing in it can nest, call or grow. What it says is compared with the bytes that follow before memory is taken.

    with files.open_file("train_x.npy") as file: x = read_array(file, nbytes=os.fstat(file.fileno()).st_size)

What is wrong is a `ValueError` with a plain reason; `PythonObjects` is that of an array of these.

Limits: plain types only, no records and no text. Headers of up to 10,000 bytes, as in NumPy.
"""

import re
from typing import IO, final

import numpy as np

from unisono.resources import check_memory
from unisono.shapes import count_elements

_MAGIC = b"\x93NUMPY"
_MOST_HEADER_BYTES = 10_000
_PIECE_BYTES = 1 << 20
_ENTRY = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>\w+)(?P=quote)\s*:\s*"""
    r"""(?:'(?P<text>[^'"]*)'|"(?P<other>[^'"]*)"|(?P<flag>True|False)|\((?P<lengths>[0-9L,\s]*)\))\s*(?:,|\Z)"""
)


@final
class NotNumbers(ValueError):
    """Text, complex numbers, dates, records."""


@final
class PythonObjects(ValueError):
    """The array holds Python objects: to read them is to run what the file says."""


def read_array(file: IO[bytes], nbytes: int) -> np.ndarray:
    """The array of an open file, which has `nbytes` from here to its end; what follows the array is not read."""
    dtype, fortran_order, shape, header_bytes = _read_header(file)
    needed, held = count_elements(shape) * dtype.itemsize, nbytes - header_bytes
    numbers = f"{' x '.join(map(str, shape)) or '1'} of {dtype.itemsize} bytes"
    told = f"its header says {numbers}, {needed:,} in all"
    if needed > held:
        raise ValueError(f"{told}, but {max(0, held):,} follow")
    check_memory(numbers, needed, "give less data, or end other programs")
    data = np.empty(needed, np.uint8)
    done = 0
    while done < needed:  # in pieces: memory is taken as bytes come, whatever was declared
        piece = file.read(min(_PIECE_BYTES, needed - done))
        if not piece:
            raise ValueError(f"{told}, but {done:,} follow")
        data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    array = data.view(dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _read_header(file: IO[bytes]) -> tuple[np.dtype, bool, tuple[int, ...], int]:
    """Type, whether in Fortran's order, shape, and how many bytes the header takes."""
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
    """Of "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"."""
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
    """Of "<f4"; a boolean, a whole or a floating-point number."""
    if re.fullmatch(r"[|=<>]?O\d*", text):
        raise PythonObjects("it holds Python objects")
    if not re.fullmatch(r"[|=<>]?[biuf]\d{1,2}", text):
        raise NotNumbers(f"is of type {text[:40]!a}, not numbers")
    try:
        return np.dtype(text)
    except TypeError:
        raise ValueError(f"it is of type {text!a}, which NumPy does not have") from None
