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
_HUGE = 1e300
_VERBS = ("state_dict", "load_state_dict")


def check_keepable(name: str, thing: Any) -> None:
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


def restore_state(thing: Any, saved: Any, arrays: Arrays) -> None:
    """It is again what it was; any exception if `saved` is not what was packed of it."""
    state = unpack(saved, arrays)
    if isinstance(thing, dict):
        kept = dict(state)
        thing.clear()
        thing.update(kept)
    else:
        if isinstance(thing, torch.optim.lr_scheduler.LRScheduler):  # takes over whatever it is given
            now = thing.state_dict()
            check_alike({key: now[key] for key in _OF_SCHEDULERS if key in now}, state, "state")
        thing.load_state_dict(state)


_OF_SCHEDULERS = ("base_lrs", "last_epoch", "_step_count", "_last_lr")
"""Of torch's own schedulers, what all of them calculate with. Others' may grow, and change their type."""


def check_alike(now: Any, then: Any, where: str) -> None:
    """A `ValueError` if numbers are no numbers there, or the like; what is None now may be anything then."""
    if isinstance(now, dict):
        fits = isinstance(then, dict)
        parts = [(now[key], then[key], f"{where}[{key!r}]") for key in now if fits and key in then]
    elif isinstance(now, list | tuple):
        fits = isinstance(then, list | tuple) and len(now) == len(then)
        parts = (
            [(a, b, f"{where}[{place}]") for place, (a, b) in enumerate(zip(now, then, strict=True))] if fits else []
        )
    elif isinstance(now, int | float) and not isinstance(now, bool):
        fits, parts = isinstance(then, int | float) and not isinstance(then, bool) and abs(then) < _HUGE, []
        fits = fits or (isinstance(then, float) and not math.isfinite(now) and math.isinf(then))
    else:
        fits, parts = now is None or type(now) is type(then), []
    if not fits:
        raise ValueError(f"{where} is {ascii(then)[:100]}, expected is something like {ascii(now)[:100]}")
    for part in parts:
        check_alike(*part)


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
    """The value that was packed; LookupError, TypeError or ValueError if `told` is nothing that `pack` makes."""
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
    if kind not in ("array", "tensor"):
        raise ValueError(f"there is no kind {ascii(kind)[:100]}")
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
