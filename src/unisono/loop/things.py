"""Things: what a user's own loop wants to be kept in a snapshot: schedulers, averaged models, numbers of its own.

The one idea: a thing is its `state_dict()`, or is a dict itself. That is written as JSON that gives back exactly what
was there (tuples, infinities, keys that are numbers), with arrays and tensors beside it: no pickle.

    arrays = {}; told = pack({"best": math.inf, "mean": tensor}, arrays)         # told goes into the manifest
    unpack(told, arrays)                                                         # equal, with tensors of its own

Limits: None, bool, int, float, str, lists, tuples, dicts, Counter, NumPy arrays and numbers, torch tensors on the CPU.
"""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from unisono.errors import UserError

Arrays: TypeAlias = dict[str, np.ndarray]
_KIND = "kind"
_VERBS = ("state_dict", "load_state_dict")


def check_thing(name: str, thing: Any) -> None:
    """A `UserError` if it has no state that could be kept."""
    if not isinstance(thing, dict) and not all(callable(getattr(thing, verb, None)) for verb in _VERBS):
        raise UserError(
            f"unisono.keep was given {name}, a {type(thing).__name__}",
            hint="give what has state_dict() and load_state_dict(), or a dict, which is then filled in place",
        )


def state_of(things: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """What to keep of them."""
    return {
        name: pack(thing if isinstance(thing, dict) else thing.state_dict(), arrays, name)
        for name, thing in things.items()
    }


def put_into(things: Mapping[str, Any], saved: Mapping[str, Any], arrays: Arrays) -> None:
    """They are again what they were."""
    for name, thing in things.items():
        state = unpack(saved[name], arrays)
        if isinstance(thing, dict):
            thing.clear()
            thing.update(state)
        else:
            thing.load_state_dict(state)


def pack(value: Any, arrays: Arrays, where: str = "state") -> Any:
    """JSON; arrays in it go to `arrays`. `where` it lies, for the message of what cannot be kept."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, float):
        return {_KIND: "float", "is": repr(value)}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        items = [pack(item, arrays, f"{where}[{place}]") for place, item in enumerate(value)]
        return items if isinstance(value, list) else {_KIND: "tuple", "is": items}
    if type(value) in (dict, Counter, OrderedDict, defaultdict):
        pairs = [[pack(key, arrays, where), pack(item, arrays, f"{where}[{key!r}]")] for key, item in value.items()]
        return {_KIND: "counter" if isinstance(value, Counter) else "dict", "is": pairs}
    array = _array_of(value)
    if array is not None:
        name = str(len(arrays))
        arrays[name] = array.copy()
        return {_KIND: "tensor" if isinstance(value, torch.Tensor) else "array", "is": name}
    raise UserError(
        f"unisono.keep cannot keep {where}: a {type(value).__name__}",
        hint="keep numbers, strings, lists, dicts, arrays and tensors on the CPU; make the rest anew",
    )


def unpack(told: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that was packed."""
    if isinstance(told, list):
        return [unpack(item, arrays) for item in told]
    if not isinstance(told, dict):
        return told
    kind, inner = told[_KIND], told["is"]
    if kind == "float":
        return float(inner)
    if kind == "tuple":
        return tuple(unpack(item, arrays) for item in inner)
    if kind in ("dict", "counter"):
        made = {unpack(key, arrays): unpack(item, arrays) for key, item in inner}
        return Counter(made) if kind == "counter" else made
    array = arrays[inner].copy()
    return array if kind == "array" else torch.from_numpy(array)


def _array_of(value: Any) -> np.ndarray | None:
    """An array of plain numbers, if it is one or a tensor of them."""
    if isinstance(value, torch.Tensor):
        try:
            value = value.detach().numpy()
        except (TypeError, RuntimeError):  # on a device, sparse, or of a type that NumPy lacks
            return None
    plain = type(value) is np.ndarray and value.dtype.kind in "biuf" and value.dtype.isnative
    return value if plain else None
