"""Damage for binary files: npy, npz, idx, safetensors, gzip; headers are edited so that the rest of the file fits.

data, about = mutate_npy(random, data)
"""

import gzip
import io
import json
import math
import struct
import zipfile
import zlib
from functools import cache
from random import Random

from fuzz_mutations import (
    DEEP,
    Mutate,
    Mutated,
    dump_json,
    edit_json,
    flip_bit,
    mutate_bytes,
    mutate_csv,
    mutate_json,
    mutate_jsonl,
    mutate_toml,
)

DIMENSIONS = (
    "-1", "0", str(2**31), str(2**62), str(2**64), "1e3", "None", "'a'", "(1,)", "True", "53.0", "9" * 400, "9" * 5000,
)  # fmt: skip
TYPES = (
    "'|O'", "'<f3'", "'<f16'", "'|V0'", "'<M8[s]'", "'<U9'", "'|S0'", "[('a','<f4')]", "'>f4'", "'<c8'", "''", "7",
    "'<i8'", "'?'", f"[('a','<f4',({2**40},))]",
)  # fmt: skip
_HEADERS = {
    "deep": "(" * 9000 + ")" * 100,
    "nested": "(" * 100 + ")" * 100,
    "code": "__import__('os').system('id')",
    "blank": " " * 118,
    "more": "{'descr': '<f4', 'fortran_order': False, 'shape': SHAPE, 'more': 7}",
}


def mutate_npy(random: Random, data: bytes) -> Mutated:
    """An array of NumPy's: its header, or bytes."""
    if random.random() < 0.2 or data[:6] != b"\x93NUMPY":
        return mutate_bytes(random, data)
    if random.random() < 0.5:
        return flip_bit(random, data, 128)
    length = struct.unpack("<H", data[8:10])[0]
    header, body = data[10 : 10 + length].decode("latin-1"), data[10 + length :]
    shape = header[header.index("'shape': ") + 9 : header.index("), }") + 1]
    descr = header[header.index("'descr': ") + 9 : header.index(", 'fortran")]
    about = random.choice(["shape", "shape", "shape", "descr", "descr", *_HEADERS, "fortran", "key"])
    if about == "shape":
        dimension = random.choice(DIMENSIONS)
        shapes = (
            f"({dimension},)",
            f"({dimension}, {dimension})",
            "()",
            "(1,)(1,)",
            f"({'1,' * 70})",
            f"(0, 0, {2**60})",
        )
        header = header.replace(shape, random.choice(shapes))
    elif about == "descr":
        header = header.replace(descr, random.choice(TYPES))
    elif about == "fortran":
        header = header.replace("False", random.choice(("True", "None", "7")))
    elif about == "key":
        header = header.replace("shape", random.choice(("Shape", "shape\\0", "")))
    else:
        header = _HEADERS[about].replace("SHAPE", shape)
    version = random.choice((1, 1, 1, 1, 2, 3, 4, 255))
    size = len(header) if random.random() < 0.9 else random.choice((0, 0xFFFF, length + 1))
    packed = struct.pack("<H" if version == 1 else "<I", size & 0xFFFF)
    return b"\x93NUMPY" + bytes((version, 0)) + packed + header.encode() + body, f"{about} in version {version}"


def mutate_idx(random: Random, data: bytes) -> Mutated:
    """A file of MNIST's kind, not packed: its header, or bytes."""
    if random.random() < 0.5 or len(data) < 8:
        return mutate_bytes(random, data)
    rank, body = data[3], data[4 + 4 * data[3] :]
    shape = list(struct.unpack(f">{rank}I", data[4 : 4 + 4 * rank]))
    kind = random.choice(("size", "size", "type", "rank", "rank", "zeros"))
    if kind == "size":
        shape[random.randrange(rank)] = random.choice((0, 1, 2**31, 2**32 - 1, shape[0] + 1))
    elif kind == "rank":
        shape = random.choice(
            ([2**32 - 1] * 255, [0] * 40, [2**16] * 4 + [0], [7] + [1] * random.choice((31, 32, 63, 64, 254)))
        )
    elif kind == "zeros":
        shape = [0, *[2**32 - 1] * random.choice((1, 2, 3))]
    code = random.choice((0, 7, 8, 9, 10, 11, 12, 13, 14, 255)) if kind == "type" else data[2]
    if random.random() < 0.8 and math.prod(shape) <= len(body):
        body = body[: math.prod(shape)]  # as long as the header says
    return bytes((0, 0, code, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + body, f"{kind} {shape[:5]}"


def pack_gz(random: Random, data: bytes) -> Mutated:
    """The same packed, and damaged after it, or a bomb."""
    if random.random() < 0.03:
        return data[:8] + gzip.compress(bytes(1 << 24)) * 55, "bomb without a head"
    if random.random() < 0.05:
        head = bytes((0, 0, 8, 3)) + struct.pack(">3I", 55, 1 << 12, 1 << 12)
        return gzip.compress(head) + gzip.compress(bytes(1 << 24)) * 55, "bomb"
    packed = gzip.compress(data)
    return (packed, "packed") if random.random() < 0.5 else mutate_bytes(random, packed)


def mutate_safetensors(random: Random, data: bytes) -> Mutated:
    """A file of tensors: its header, with the right length before it, or bytes."""
    if random.random() < 0.35 or len(data) < 10:
        return mutate_bytes(random, data)
    length = struct.unpack("<Q", data[:8])[0]
    header, body = data[8 : 8 + length], data[8 + length :]
    entries = json.loads(header)
    kind = random.choice(["json", "json", "json", "dimensions", "empty", "order", "order", "deep", "pad", "long"])
    if kind == "json":
        header, about = mutate_json(random, header)
    elif kind == "order" and "order" in entries.get("__metadata__", {}):
        order, about = edit_json(random, json.loads(entries["__metadata__"]["order"]))
        deep = f'{{"parameters": {"[" * DEEP}{"]" * DEEP}}}'
        entries["__metadata__"]["order"] = deep if random.random() < 0.25 else json.dumps(order)
        header = dump_json(entries)
    else:
        # A file of one array that is right but for its shape.
        shape = {
            "dimensions": [1] * random.choice((33, 65, 100, 5000)),
            "empty": [0, *[2**40] * random.choice((1, 2, 3))],
            "long": [0, 2**63],
        }.get(kind, [1])
        count = 0 if 0 in shape else 1
        entries = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * count]}}
        if random.random() < 0.5:
            entries["__metadata__"] = {"order": json.dumps({"parameters": ["a"], "buffers": []})}
        header, body, about = dump_json(entries), bytes(4 * count), kind
        if kind == "deep":
            header = header[:-1] + b', "more": ' + b"[" * DEEP + b"]" * DEEP + b"}"
    size = len(header) if random.random() < 0.95 else random.choice((0, 1, 2**40, 2**63, len(header) - 1))
    return struct.pack("<Q", size) + header + body, about


def mutate_npz(random: Random, data: bytes) -> Mutated:
    """An archive of arrays: a member, the members' names, or bytes; seldom a bomb."""
    kind = random.choice(["bytes", "bytes", "bytes", "member", "member", "member", "name", "twice", "method"])
    if kind == "bytes":
        return (bomb_npz(), "bomb") if random.random() < 0.02 else mutate_bytes(random, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, about = random.choice(list(members)), ""
    if kind == "member":
        members[name], about = mutate_npy(random, members[name])
    if kind == "name":
        new = random.choice(("../x.npy", "/x.npy", "train_x", "x\x1b[2J.npy", "/", "x.npy"))
        members = {(new if each == name else each): content for each, content in members.items()}
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
        if kind == "twice":
            archive.filelist.append(archive.filelist[0])
    return made.getvalue(), f"{kind} {name} {about}"


@cache
def bomb_npz() -> bytes:
    """Arrays of zeros that take 800 MiB, and packed less than 1 MiB."""

    def packed(rows: int, columns: str, nbytes: int) -> bytes:
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(nbytes)

    made, rows = io.BytesIO(), 1 << 19
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in ("train", "test"):
            archive.writestr(f"{part}_x.npy", packed(rows, "100", 800 * rows))
            archive.writestr(f"{part}_y.npy", packed(rows, "1", 8 * rows))
    return made.getvalue()


BY_ENDING: dict[str, Mutate] = {
    ".json": mutate_json, ".jsonl": mutate_jsonl, ".csv": mutate_csv, ".npy": mutate_npy, ".npz": mutate_npz,
    ".safetensors": mutate_safetensors,
}  # fmt: skip


def mutate_file(random: Random, name: str, data: bytes, keys: tuple[str, ...] = ("ranks",)) -> Mutated:
    """By the ending of its name."""
    ending = name[name.rfind(".") :]
    try:
        if ending == ".toml":
            return mutate_toml(random, data, keys)
        return BY_ENDING.get(ending, mutate_bytes)(random, data)
    except (ValueError, KeyError, IndexError, zlib.error):  # damaged before
        return mutate_bytes(random, data)
