"""Snapshots made by an enemy, with right hashes: each is refused with a reason, and nothing runs, hangs or fills up."""

import hashlib
import json
import os
import pickle
import struct
from pathlib import Path

import pytest

from support.training.snapshot_cases import contents, is_exact, put
from unisono.errors import UserError
from unisono.storage.snapshots.snapshot import SnapshotSearch, newest, require_newest

SEAL = b',\n "manifest_sha256": "'


def seal(body: bytes) -> bytes:
    """A manifest's text, `body` without its closing brace, with the hash that vouches for it."""
    head = body + SEAL
    return head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'


def forge(folder: Path, changed: dict[str, object], files: dict[str, bytes] | None = None) -> SnapshotSearch:
    """A second snapshot whose manifest has `changed` entries; what is found then."""
    put(folder, 1)
    path = folder / "000002-000000000002"
    path.mkdir()
    records = {}
    for name, data in (files or {}).items():
        (path / name).write_bytes(data)
        group = name.removesuffix(".safetensors")
        records[group] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    content = {"format": "unisono snapshot", "version": 1, "position": 2, "facts": {}, "files": records} | changed
    (path / "manifest.json").write_bytes(seal(json.dumps(content)[:-1].encode()))
    return newest(folder)


def reason_of(found: SnapshotSearch) -> str:
    """Why the forged one was refused; the one before it was taken."""
    (rejected,) = found.rejected
    assert found.snapshot.position == 1
    assert is_exact(found.snapshot)
    assert rejected.reason.isprintable()
    assert len(rejected.reason) <= 400
    return rejected.reason


def tensors(header: object, data: bytes = b"") -> bytes:
    """A safetensors file with this header, whatever it claims."""
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(shape: list[int], kind: str = "F32", offsets: tuple[int, int] = (0, 4)) -> dict[str, object]:
    return {"a": {"dtype": kind, "shape": shape, "data_offsets": list(offsets)}}


def test_the_forger_can_forge(tmp_path):
    found = forge(tmp_path, {}, {"params.safetensors": tensors(one([1]), b"\0\0\x80\x3f")})
    assert found.rejected == []
    assert found.snapshot.arrays("params")["a"].tolist() == [1.0]


ENTRY = {"bytes": 1, "sha256": "0" * 64}
MANIFESTS = {
    "no snapshot": ({"format": "else"}, "is not the manifest"),
    "future": ({"version": 2}, "has format version 2; this unisono reads 1"),
    "true is no version": ({"version": None}, "has format version None"),
    "another position": ({"position": 3}, "is that of position 3"),
    "position is text": ({"position": "2"}, "lacks a position"),
    "position is true": ({"position": True}, "lacks a position"),
    "facts": ({"facts": []}, "lacks a position, facts"),
    "files": ({"files": ["params"]}, "lacks a position, facts or files"),
    "path upwards": ({"files": {"../000001-000000000001/params": ENTRY}}, "lists a group called '../000001"),
    "absolute path": ({"files": {"/etc/passwd": ENTRY}}, "lists a group called '/etc/passwd'"),
    "terminal": ({"files": {"\x1b[31mred": ENTRY}}, "lists a group called '.x1b[31mred'"),
    "long name": ({"files": {"x" * 100_000: ENTRY}}, "lists a group called 'xxx"),
    "no record": ({"files": {"params": None}}, r"does not say length and SHA-256 of params.safetensors"),
    "negative": ({"files": {"params": ENTRY | {"bytes": -1}}}, "does not say length"),
    "fraction": ({"files": {"params": ENTRY | {"bytes": 1.5}}}, "does not say length"),
    "hash is a number": ({"files": {"params": ENTRY | {"sha256": 0}}}, "does not say length"),
    "short hash": ({"files": {"params": ENTRY | {"sha256": "00"}}}, "does not say length"),
    "absurd length": ({"files": {"params": ENTRY | {"bytes": 1 << 60}}}, "lists 1048576.0 TiB of arrays; this machine"),
}


@pytest.mark.parametrize(("changed", "reason"), MANIFESTS.values(), ids=MANIFESTS.keys())
def test_manifests(tmp_path, changed, reason):
    found = reason_of(forge(tmp_path, changed))
    assert found.startswith("manifest.json ")
    assert reason.replace(".x1b", "\\x1b") in found


TEXTS = {
    "twice": b'{"format": "unisono snapshot", "format": "unisono snapshot"',
    "nan": b'{"facts": NaN',
    "bytes": b'{"facts": "\xff\xfe"',
    "list": b"[1",
    "pickle": pickle.dumps({"facts": print}),
}
"""More of what is no JSON: `tests/test_parsing.py`."""


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_manifests_that_are_no_plain_json(tmp_path, text):
    forge(tmp_path, {})
    (tmp_path / "000002-000000000002" / "manifest.json").write_bytes(seal(text))
    assert reason_of(newest(tmp_path)).startswith("manifest.json is not plain JSON: ")


def test_a_manifest_of_two_gigabytes_is_not_read(tmp_path):
    forge(tmp_path, {})
    os.truncate(tmp_path / "000002-000000000002" / "manifest.json", 2 << 30)
    assert reason_of(newest(tmp_path)) == "manifest.json is 2147483648 bytes long, which no manifest is"


def test_a_file_with_holes_as_long_as_its_record_is_not_hashed(tmp_path):
    nbytes = 1 << 42
    forge(tmp_path, {"files": {"params": ENTRY | {"bytes": nbytes}}})
    path = tmp_path / "000002-000000000002" / "params.safetensors"
    path.touch()
    os.truncate(path, nbytes)
    assert "lists 4.0 TiB of arrays; this machine has " in reason_of(newest(tmp_path))


def test_a_link_out_of_the_snapshot_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(tensors(one([1]), b"\0" * 4))
    record = {"bytes": secret.stat().st_size, "sha256": hashlib.sha256(secret.read_bytes()).hexdigest()}
    forge(tmp_path / "s", {"files": {"params": record}})
    (tmp_path / "s" / "000002-000000000002" / "params.safetensors").symlink_to(secret)
    assert reason_of(newest(tmp_path / "s")) == "params.safetensors is a symbolic link"


SAME = '{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
HEADERS = {
    "empty file": (b"", "says that its header has 0 bytes"),
    "long header": (tensors(" " * (1 << 25) + "{}"), "says that its header has 33554434 bytes"),
    "twice": (tensors(f'{{"a": {SAME}, "a": {SAME}}}', b"\0" * 4), "is not plain JSON: a key occurs twice"),
    "huge array": (tensors(one([1 << 62], offsets=(0, 1 << 63))), "holds an array of shape [4611686018427387904]"),
    "type": (tensors(one([2], "BF16"), b"\0" * 4), "holds a, of type BF16"),
    "terminal": (tensors(one([1], "\x1b[31m"), b"\0" * 4), "is no safetensors file"),
    "pickle": (pickle.dumps(print), "says that its header has"),
}
"""More of what is no such file: `tests/test_safetensors_file.py`."""


@pytest.mark.parametrize(("data", "reason"), HEADERS.values(), ids=HEADERS.keys())
def test_safetensors_files(tmp_path, data, reason):
    found = reason_of(forge(tmp_path, {}, {"params.safetensors": data}))
    assert found.startswith("params.safetensors ")
    assert reason in found


@pytest.mark.parametrize(
    "order", ['{"parameters": ["b"], "buffers": []}', "[", "[" * 200_000], ids=["other", "cut", "deep"]
)
def test_an_order_that_is_not_that_of_the_arrays(tmp_path, order):
    header = {"__metadata__": {"order": order}} | one([1])
    found = forge(tmp_path, {}, {"params.safetensors": tensors(header, b"\0" * 4)})
    with pytest.raises(UserError, match=r"000002-000000000002.*params\.safetensors.* order"):
        found.snapshot.arrays("params")


def test_nothing_is_run(tmp_path):
    """A pickle in every place of a snapshot; the same pickle does its work when it is loaded as one."""
    mark = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(mark),)

    evil = pickle.dumps(Evil())
    pickle.loads(evil)
    mark.rmdir()
    folder = tmp_path / "snapshots"
    path = put(folder, 1).path
    for name in contents(path):
        (path / name).write_bytes(evil)
    with pytest.raises(UserError, match=r"manifest\.json does not hold what was written"):
        require_newest(folder)
    for text in (seal(evil), seal(json.dumps({"facts": evil.decode("latin1")})[:-1].encode())):
        (path / "manifest.json").write_bytes(text)
        with pytest.raises(UserError):
            require_newest(folder)
    forge(tmp_path / "s", {}, {"params.safetensors": evil})
    assert not mark.exists()
