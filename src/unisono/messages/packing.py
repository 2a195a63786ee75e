"""Values and messages as bytes, between processes of one run: JSON with arrays and messages in it, never pickle.

>>> unpack(pack({"loss": 0.5, "w": np.arange(2)}))["w"].tolist()
[0, 1]
>>> unpack(pack(Note("the disk is slow")))
Note(text='the disk is slow')

The one idea: a message travels under the name of its type, so that the receiver gets the type back and dispatches by
it. A user's value cannot be taken for a message: its dicts may not have the keys that mark one.

Limits: None, bool, int, float, str, lists, tuples (they come back as lists; in fields of messages as declared), dicts
with string keys, NumPy numbers and arrays of them, and the types in `MESSAGES`.
"""

import base64
import json
from dataclasses import fields
from functools import cache
from typing import Any, get_origin, get_type_hints

import numpy as np

from unisono.errors import UserError
from unisono.messages import exchanger_orders, rank_reports
from unisono.messages.rank_reports import Note as Note

_ARRAY, _MESSAGE = "__array__", "__message__"
MESSAGES: dict[str, type] = {kind.__name__: kind for kind in (*rank_reports.TYPES, *exchanger_orders.TYPES)}
"""What may travel, by name."""


def pack(value: Any) -> bytes:
    """A `UserError` names what cannot be packed."""
    return json.dumps(_plain(value)).encode()


def unpack(packed: bytes) -> Any:
    """What was packed by a process of the same run."""
    return json.loads(packed, object_hook=_restore)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic) and isinstance(value.item(), bool | int | float | str):
        return value.item()
    # Types whose name does not bring them back (bfloat16, records) would arrive as raw bytes.
    if type(value) is np.ndarray and value.dtype.kind in "biufc" and np.dtype(value.dtype.str) == value.dtype:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {_ARRAY: [value.dtype.str, list(value.shape), data]}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) and key not in (_ARRAY, _MESSAGE) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    kind = type(value)
    if MESSAGES.get(kind.__name__) is kind:
        return {_MESSAGE: [kind.__name__, *(_plain(getattr(value, one.name)) for one in fields(kind))]}
    raise UserError(
        f"a rank returned a {type(value).__name__}, which cannot be handed back",
        hint="return numbers, strings, lists, dicts with string keys, or NumPy arrays",
    )


def _restore(entry: dict[str, Any]) -> Any:
    if entry.keys() == {_ARRAY}:
        dtype, shape, data = entry[_ARRAY]
        return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    if entry.keys() == {_MESSAGE}:
        name, *values = entry[_MESSAGE]
        kind = MESSAGES[name]
        return kind(
            *(tuple(value) if is_tuple else value for value, is_tuple in zip(values, _tuples(kind), strict=True))
        )
    return entry


@cache
def _tuples(kind: type) -> list[bool]:
    """Which fields of a message are tuples, which JSON gives back as lists."""
    hints = get_type_hints(kind)
    return [get_origin(hints[one.name]) is tuple for one in fields(kind)]
