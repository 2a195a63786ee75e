"""Damage for files: bits and bytes of any file, and edits of JSON, TOML and CSV that leave the rest of their
structure right. `fuzz_formats.py` does the same for binary files.

The one idea: a random bit seldom gets past the first check of a reader, so most edits are of one value of an otherwise
sound file. Each function takes a `random.Random` and the file, and returns the file with a few words on what was done.

    data, about = mutate_json(random, data)

Limits: knows the formats from their descriptions, not from unisono's readers.
"""

import csv
import io
import json
import struct
import tomllib
from collections.abc import Callable
from random import Random
from typing import Any

from unisono.recipe import OPTIONS
from unisono.recipe.reading import ALIASES, flat_options

Mutated = tuple[bytes, str]
Mutate = Callable[[Random, bytes], Mutated]

DEEP = 100_000
ODD_TEXTS = (
    "", " ", "\0", "\x1b[31mred\x1b[0m", "\x9b31m", "a" * 10_000, "../outside/secret.txt", "/dev/zero", "-", "--",
    "--help", "$(id)", "`id`",
    "a\nb", "a\rb", "\u202ereversed", "e\u0301", "\U0001f600", "\ud800", "nan", "inf", "1e999", "0x10", "1_000", "٣",
    "%s%n", "{}", "[bold]",
    "<script>alert(1)</script>", "'; DROP", "file.py:f", "None", "true", "a:b=c,d=e", "\ufeff", "~nobody-here", "*",
)  # fmt: skip
ODD_NUMBERS = (
    0, 1, -1, 2, 3, 7, 13, 255, 256, 4095, 4096, 65535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1,
    2**63, -(2**63), 2**64,
    10**30, 10**400, 0.5, -0.5, 1e-320, 1e38, 1e308, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip


def odd_value(random: Random, depth: int = 0) -> Any:
    """Any value of JSON, mostly a strange one."""
    kind = random.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return random.choice(ODD_NUMBERS)
    if kind < 4:
        return random.choice(ODD_TEXTS)
    if kind == 4:
        return random.choice((None, True, False))
    if kind == 5:
        return [odd_value(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == 6:
        return {random.choice(ODD_TEXTS): odd_value(random, depth + 1) for _ in range(random.randrange(4))}
    nested: Any = 0
    for _ in range(random.choice((33, 100, 300))):
        nested = [nested]
    return nested


def flip_bit(random: Random, data: bytes, most: int) -> Mutated:
    """One of the first `most` bytes."""
    value, place = bytearray(data), random.randrange(min(most, len(data)))
    value[place] ^= 1 << random.randrange(8)
    return bytes(value), f"bit of byte {place}"


def mutate_bytes(random: Random, data: bytes) -> Mutated:
    """Any file: a bit, a byte, a number, a piece."""
    place = random.randrange(len(data) + 1) if random.random() < 0.5 else random.randrange(min(len(data), 128) + 1)
    kind = random.choice(
        ["bit", "bit", "bit", "bit", "byte", "cut", "head", "insert", "repeat", "remove", "number", "append", "empty"]
    )
    value = bytearray(data)
    if kind == "bit" and value:
        place = min(place, len(value) - 1)
        value[place] ^= 1 << random.randrange(8)
    elif kind == "byte" and value:
        place = min(place, len(value) - 1)
        value[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    elif kind == "cut":
        del value[place:]
    elif kind == "head":
        del value[:place]
    elif kind == "insert":
        value[place:place] = random.randbytes(random.choice((1, 2, 7, 64, 1000)))
    elif kind == "repeat":
        value[place:place] = value[place : place + random.choice((1, 16, 300))] * random.choice((1, 2, 50))
    elif kind == "remove":
        del value[place : place + random.choice((1, 2, 8, 100))]
    elif kind == "number":
        form = random.choice(("<I", ">I", "<Q", ">Q", "<H", ">H"))
        number = random.choice((0, 1, 0x7FFF, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1)) & (
            256 ** struct.calcsize(form) - 1
        )
        value[place : place + struct.calcsize(form)] = struct.pack(form, number)
    elif kind == "append":
        value += random.choice((b"\0", b"\n", b"\0" * 4096, random.randbytes(100)))
    else:
        value.clear()
    return bytes(value), f"{kind} at {place} of {len(data)}"


def _edit(random: Random, value: Any) -> tuple[Any, str]:
    """A value of JSON with one part of it replaced, removed, renamed or doubled."""
    if not isinstance(value, (dict, list)) or not value or random.random() < 0.08:
        return odd_value(random), f"for {str(value)[:20]!r}"
    key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if isinstance(value[key], (dict, list)) and random.random() < 0.75:
        inner, about = _edit(random, value[key])
        made = dict(value) if isinstance(value, dict) else list(value)
        made[key] = inner
        return made, f"{key}.{about}"
    made, kind = (dict(value) if isinstance(value, dict) else list(value)), random.randrange(10)
    if kind < 6:
        made[key] = odd_value(random)
        return made, f"{key}={str(made[key])[:30]!r}"
    if kind < 8:
        del made[key]
        return made, f"{key} removed"
    if isinstance(made, list):
        return made + made[:1] * random.choice((1, 3, 1000)), f"{key} repeated"
    made[random.choice(ODD_TEXTS)] = made.pop(key)
    return made, f"{key} renamed"


def edit_json(random: Random, value: Any) -> tuple[Any, str]:
    """One to three edits."""
    abouts = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        value, about = _edit(random, value)
        abouts.append(about)
    return value, ", ".join(abouts)


def dump_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def mutate_json(random: Random, data: bytes) -> Mutated:
    """A file of JSON: one value, or its text."""
    if random.random() < 0.3:
        return mutate_bytes(random, data)
    if random.random() < 0.15:
        return _deep_json(random, data)
    value, about = edit_json(random, json.loads(data))
    return dump_json(value), about


def _deep_json(random: Random, data: bytes) -> Mutated:
    depth = random.choice((200, 1100, DEEP))
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    texts = {
        "nested": opened * depth + b"0" + closed * depth,
        "nested inside": data.rstrip().removesuffix(b"}") + b', "more": ' + b"[" * depth + b"]" * depth + b"}",
        "open": opened * depth,
        "digits": b"1" * random.choice((4301, 400_000)),
        "twice": data.rstrip().removesuffix(b"}") + b',"format":1,"format":2}',
        "mark": b"\xef\xbb\xbf" + data,
        "utf-16": data.decode(errors="replace").encode("utf-16"),
        "not finite": b'{"loss": NaN, "epoch": Infinity, "rank": -Infinity}',
        "control": data.replace(b'"', b'"\x1b[2J', 3),
    }  # fmt: skip
    about = random.choice(list(texts))
    return texts[about], f"{about} ({depth})"


def mutate_jsonl(random: Random, data: bytes) -> Mutated:
    """A file with a value of JSON in each line."""
    lines = data.splitlines()
    if not lines or random.random() < 0.3:
        return mutate_bytes(random, data)
    number = random.randrange(len(lines))
    if random.random() < 0.1:
        lines[number:number] = [lines[number]] * random.choice((1, 20, 2000))
        return b"\n".join(lines) + b"\n", f"line {number} repeated"
    try:
        lines[number], about = mutate_json(random, lines[number])
    except ValueError:
        lines[number], about = mutate_bytes(random, lines[number])
    return b"\n".join(lines) + b"\n", f"line {number}: {about}"


def mutate_csv(random: Random, data: bytes) -> Mutated:
    """A table: a cell, a row, a column, the heads."""
    if random.random() < 0.3:
        return mutate_bytes(random, data)
    rows = list(csv.reader(io.StringIO(data.decode()))) or [[""]]
    row = random.randrange(len(rows))
    column = random.randrange(max(1, len(rows[row])))
    kind = random.choice(["cell", "cell", "cell", "cell", "row", "rows", "column", "heads", "short", "long", "quote"])
    if kind == "cell" and rows[row]:
        rows[row][column] = str(random.choice((*ODD_NUMBERS[:-10], *ODD_TEXTS)))
    elif kind == "row":
        del rows[row]
    elif kind == "rows":
        rows[row:row] = [list(rows[row])] * random.choice((1, 5, 3000))
    elif kind == "column":
        rows = [line[:column] + line[column + 1 :] for line in rows]
    elif kind == "heads":
        rows[0] = random.choice((rows[0] * 2, rows[0][::-1], [name.upper() for name in rows[0]], []))
    elif kind == "short":
        rows[row] = rows[row][:column]
    elif kind == "long":
        rows[row] += ["7"] * random.choice((1, 5000))
    text = "\n".join(",".join(line) for line in rows) + "\n"
    if kind == "quote":
        text = text.replace(",", ',"', 1)
    return text.encode("utf-8", "surrogatepass"), f"{kind} {row},{column}"


def toml_of(value: Any) -> str:
    """A value of JSON as TOML has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_of(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if value is None:
        return "1979-05-27T07:32:00Z"
    if isinstance(value, float):
        return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(str(value), repr(value))
    return json.dumps(value)


def _table_of(key: str) -> tuple[str, str]:
    """The head of the table that an option of a recipe stands in, and its key there."""
    place = OPTIONS.get(ALIASES.get(key, key))
    return (f"[{place.group}]", key if key in ALIASES else place.field) if place else ("", key)


def mutate_toml(random: Random, data: bytes, keys: tuple[str, ...]) -> Mutated:
    """A file of `key = value` lines, and what else TOML knows. keys: names that its reader knows."""
    kind = random.choice(
        [
            "bytes",
            "value",
            "value",
            "value",
            "value",
            "value",
            "unknown",
            "dots",
            "nested",
            "twice",
            "table",
            "mark",
            "encoding",
            "lines",
            "long",
            "date",
        ]
    )
    lines = data.decode().splitlines()
    key, value = random.choice(keys), toml_of(odd_value(random))
    count = random.choice((3, 200, 5000, 20_000))
    if kind == "bytes":
        return mutate_bytes(random, data)
    if kind in ("mark", "encoding"):
        code = random.choice(("utf-8-sig", "utf-16", "latin-1", "utf-32"))
        return f'{data.decode()}\nout = "é"\n'.encode(code), code
    if random.random() < 0.5:  # as earlier versions wrote it
        lines = [f"{name} = {json.dumps(entry)}" for name, entry in flat_options(tomllib.loads(data.decode())).items()]
    head, within = _table_of(key)
    at, key = (lines.index(head) + 1, within) if head in lines else (0, key)
    end = next((number for number in range(at, len(lines)) if lines[number].startswith("[")), len(lines))
    lines[at:end] = [line for line in lines[at:end] if kind == "twice" or not line.startswith(f"{key} ")]
    lines[at:at] = {
        "value": [f"{key} = {value}"], "unknown": [f"{json.dumps(random.choice(ODD_TEXTS))} = {value}"],
        "dots": [".".join("a" * count) + f" = {value}"],
        "nested": [f"{key} = {'[' * count}{']' * random.choice((count, 0))}"],
        "twice": [f"{key} = {value}", f"{key} = {value}"], "table": [f"[{key}{'.a' * count}]", f"b = {value}"],
        "lines": [f"{key} = '''a\nb'''"], "long": [f'{key} = "{"a" * 40 * count}"'], "date": [f"{key} = 1979-05-27"],
    }[kind]  # fmt: skip
    text = random.choice(("\n", "\n", "\n", "\r\n")).join(lines) + "\n"
    return text.encode("utf-8", "surrogatepass"), f"{kind} {key} = {value[:40]}"
