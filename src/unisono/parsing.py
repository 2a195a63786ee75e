"""The one way to parse JSON and TOML that somebody else may have written: recipes, run directories, the network.

The one idea: the text is bounded before a parser sees it, so that memory and time stay in proportion to its length:
its length, how deeply it is nested, the digits of its numbers, and for TOML the parts of its keys (`tomllib` takes the
square of them: 1.6 GB for 40 kB of dots). What is wrong is a `ValueError` with a plain reason, and nothing else.

    parse_json(b'{"loss": 0.5}'); parse_toml('lr = 0.1')

Limits: whole numbers of up to 4,300 digits are passed on, which `float` may not take; JSON's NaN and Infinity as well,
unless `strict`. Text that is not UTF-8 is refused.
"""

import json
import math
import re
import tomllib
from typing import Any

MOST_JSON_BYTES = 64 << 20
MOST_TOML_BYTES = 1 << 20
MOST_LEVELS = 100
MOST_DIGITS = 4300
MOST_KEY_PARTS = 16
MOST_KEYS = 10_000
"""Of TOML: keys, tables and the parts of dotted keys, all together; each takes about 1 kB while it is parsed."""

_TOO_LARGE = 10**MOST_DIGITS
# Strings match also without an end: a scan that fails there would begin again at each quote in them.
_LONG_NUMBER = re.compile(rf"(?<![0-9])[0-9]{{{MOST_DIGITS + 1}}}")
_JSON_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]|[0-9]++', re.DOTALL)
_TOML_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5})?'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5})?"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+"
    r"|[0-9A-Za-z_+-]++|[\[\]{}=.,\n]",
    re.DOTALL,
)


def parse_json(text: bytes | str, *, most_bytes: int = MOST_JSON_BYTES, strict: bool = False) -> Any:
    """What a JSON text says. strict: keys occur once, and numbers are finite."""
    plain = _decoded(text, most_bytes)
    if plain.count("[") + plain.count("{") > MOST_LEVELS or _has_long_number(plain):
        _check_json(plain)
    try:
        if strict:
            return json.loads(plain, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
        return json.loads(plain)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg}, in line {error.lineno}, column {error.colno}") from None


def parse_toml(text: bytes | str, *, most_bytes: int = MOST_TOML_BYTES) -> dict[str, Any]:
    """What a TOML text says."""
    plain = _decoded(text, most_bytes)
    _check_toml(plain)
    found = tomllib.loads(plain)
    _check_values(found)
    return found


def _decoded(text: bytes | str, most_bytes: int) -> str:
    if len(text) > most_bytes:
        raise ValueError(f"longer than {most_bytes:,} bytes")
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise ValueError(f"not UTF-8, in line {line}") from None


def _has_long_number(text: str) -> bool:
    return len(text) > MOST_DIGITS and _LONG_NUMBER.search(text) is not None


def _check_json(text: str) -> None:
    level = 0
    for token in _JSON_TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            level += 1
        elif first in "]}":
            level -= 1
        if level > MOST_LEVELS:
            raise _bad(text, token, f"nested more deeply than {MOST_LEVELS} levels")
        if first != '"' and len(token[0]) > MOST_DIGITS:
            raise _bad(text, token, f"a number of more than {MOST_DIGITS:,} digits")


def _check_toml(text: str) -> None:
    level = dots = keys = 0
    for token in _TOML_TOKEN.finditer(text):
        first = token[0][0]
        if first == ".":
            dots, keys = dots + 1, keys + 1
        elif first in "[{":
            level, dots, keys = level + 1, 0, keys + (level == 0)  # at the outermost level: a table's name, or a value
        elif first in "]}":
            level, dots = level - 1, 0
        elif first in "=,\n":
            dots, keys = 0, keys + (first == "=")
        if level > MOST_LEVELS:
            raise _bad(text, token, f"nested more deeply than {MOST_LEVELS} levels")
        if dots >= MOST_KEY_PARTS:
            raise _bad(text, token, f"a key of more than {MOST_KEY_PARTS} parts")
        if keys > MOST_KEYS:
            raise _bad(text, token, f"more than {MOST_KEYS:,} keys and tables")
        if first not in "\"'#" and len(token[0]) > MOST_DIGITS:
            raise _bad(text, token, f"a number or name of more than {MOST_DIGITS:,} digits")


def _check_values(found: dict[str, Any]) -> None:
    """What the text does not show: dotted keys of tables in tables add up, and hexadecimal digits count for more."""
    level, values = 0, list[Any]([found])
    while values:
        level += 1
        if level > MOST_LEVELS + 1:
            raise ValueError(f"nested more deeply than {MOST_LEVELS} levels")
        values = [
            each
            for entry in values
            if isinstance(entry, dict | list)
            for each in (entry.values() if isinstance(entry, dict) else entry)
        ]
        if any(isinstance(each, int) and abs(each) >= _TOO_LARGE for each in values):
            raise ValueError(f"a number of more than {MOST_DIGITS:,} digits")


def _bad(text: str, token: re.Match[str], reason: str) -> ValueError:
    return ValueError(f"{reason}, in line {text.count(chr(10), 0, token.start()) + 1}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) < len(pairs):
        raise ValueError("a key occurs twice")
    return entry


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal[:50]} is not a finite number")
    return value
