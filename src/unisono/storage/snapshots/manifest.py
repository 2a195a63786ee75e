"""A snapshot's manifest: what it holds, in JSON that a person can read and a flipped bit cannot survive.

The one idea: the last entry of the text is the SHA-256 of all bytes before it. So the manifest vouches for itself, and
with a length and a SHA-256 a file for the arrays too. Files are named by their group, never by a path in the text.

    text = sealed(Manifest(position=120, facts={"epoch": 3}, files={"params": Record(72, "9f86d0...")}))

{"format": "unisono snapshot", "version": 1, "position": 120, "facts": {...},
 "files": {"params": {"bytes": 72, "sha256": "9f86d0..."}}, "manifest_sha256": "..."}

Limits: facts are what JSON gives back unchanged (no NaN, no tuples, no keys but strings, nothing
nested more deeply than 100 levels). The hash finds accidents, not
forgers: a user who may write the directory may write another whole snapshot.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, final

import psutil

from unisono.errors import UserError
from unisono.parsing import parse_json
from unisono.resources import readable_bytes
from unisono.storage.snapshots.verified_files import MOST_TEXT_BYTES, Damaged, Record, plain_file, plain_json

FILE = "manifest.json"
FORMAT, VERSION = "unisono snapshot", 1
_GROUP, _SHA256 = re.compile(r"[a-z][a-z0-9_]{0,63}"), re.compile(r"[0-9a-f]{64}")
_SEAL, _END = ',\n "manifest_sha256": "', '"\n}\n'


@final
@dataclass(frozen=True)
class Manifest:
    """`files`: of each group of arrays what is known of its file, `file_name(group)`."""

    position: int
    facts: dict[str, Any]
    files: Mapping[str, Record]


def file_name(group: str) -> str:
    return f"{group}.safetensors"


def check_group(group: str) -> None:
    if not _GROUP.fullmatch(group):
        raise UserError(
            f"a group of arrays cannot be called {group!r}", hint="use small letters, digits and _, a letter first"
        )


def sealed(manifest: Manifest) -> bytes:
    """The text of a manifest; a `UserError` if the facts would not come back as they are."""
    files = {group: {"bytes": record.nbytes, "sha256": record.sha256} for group, record in manifest.files.items()}
    content = {
        "format": FORMAT, "version": VERSION, "position": manifest.position, "facts": manifest.facts, "files": files,
    }  # fmt: skip
    try:
        text = json.dumps(content, indent=1, allow_nan=False)
        if parse_json(text, most_bytes=len(text), strict=True) != content:
            raise ValueError("JSON gives back something else (tuples? keys that are no strings?)")
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"the facts of a snapshot cannot be kept: {error}",
            hint="give finite numbers, strings, lists, and dicts with string keys",
        ) from None
    head = (text.removesuffix("\n}") + _SEAL).encode()
    whole = head + (hashlib.sha256(head).hexdigest() + _END).encode()
    if len(whole) > MOST_TEXT_BYTES:
        raise UserError(
            f"the facts of a snapshot take {readable_bytes(len(whole))}; at most {readable_bytes(MOST_TEXT_BYTES)} fit",
            hint="give arrays as arrays",
        )
    return whole


def read(folder: Path) -> Manifest:
    """The manifest of a snapshot; `Damaged` if it is not exactly one of ours."""
    path = folder / FILE
    with plain_file(path) as file:
        nbytes = os.fstat(file.fileno()).st_size
        if nbytes > MOST_TEXT_BYTES:
            raise Damaged(path, f"is {nbytes} bytes long, which no manifest is")
        whole = file.read()
    seal = len(whole) - 64 - len(_END)
    if seal < 0 or whole[seal:] != (hashlib.sha256(whole[:seal]).hexdigest() + _END).encode():
        raise Damaged(path, "does not hold what was written: it does not end with its own SHA-256")
    content = plain_json(path, whole)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Damaged(path, "is not the manifest of a snapshot")
    if content.get("version") != VERSION:
        raise Damaged(path, f"has format version {content.get('version')}; this unisono reads {VERSION}")
    position, facts, files = (content.get(key) for key in ("position", "facts", "files"))
    if not (_count(position) and isinstance(facts, dict) and isinstance(files, dict)):
        raise Damaged(path, "lacks a position, facts or files")
    records = {group: _record(path, group, entry) for group, entry in files.items()}
    total, memory = sum(record.nbytes for record in records.values()), int(psutil.virtual_memory().total)
    # Before anything is hashed: a file with holes can be longer than a day of reading.
    if total > memory:
        raise Damaged(path, f"lists {readable_bytes(total)} of arrays; this machine has {readable_bytes(memory)}")
    return Manifest(position, facts, records)


def _record(path: Path, group: str, entry: Any) -> Record:
    if not _GROUP.fullmatch(group):
        raise Damaged(path, f"lists a group called {group!r}")
    nbytes, sha256 = (entry.get(key) if isinstance(entry, dict) else None for key in ("bytes", "sha256"))
    if not (_count(nbytes) and isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise Damaged(path, f"does not say length and SHA-256 of {file_name(group)}")
    return Record(nbytes, sha256)


def _count(value: Any) -> TypeGuard[int]:
    return type(value) is int and value >= 0
