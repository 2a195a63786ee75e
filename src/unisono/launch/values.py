"""Values that ranks give back to the process that started them: JSON with arrays in it, never pickle.

>>> unpack(pack({"loss": 0.5, "w": np.arange(2)}))["w"].tolist()
[0, 1]

Limits: None, bool, int, float, str, lists, tuples (they come back as lists), dicts with string keys, NumPy numbers and
arrays of them.
"""

import base64
import json
from typing import Any

import numpy as np

from unisono.errors import UserError

_ARRAY = "__array__"


def pack(value: Any) -> bytes:
    """A `UserError` names what cannot be packed."""
    return json.dumps(_plain(value)).encode()


def unpack(packed: bytes) -> Any:
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
    if isinstance(value, dict) and all(isinstance(key, str) and key != _ARRAY for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise UserError(
        f"a rank returned a {type(value).__name__}, which cannot be handed back",
        hint="return numbers, strings, lists, dicts with string keys, or NumPy arrays",
    )


def _restore(entry: dict[str, Any]) -> Any:
    if entry.keys() == {_ARRAY}:
        dtype, shape, data = entry[_ARRAY]
        return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
    return entry
