"""Module attributes: the Python state of a module, what it keeps outside its parameters and buffers.

The one idea: the attributes of every submodule are flattened to leaves, each with a name, its bits and a short text.
Two states are compared leaf by leaf, so the first difference has a name: 'gate.calls', 'len(gate.history)'.

    before = module_attributes(module); module(x); change = first_change(before, module_attributes(module))
    change.name, change.before, change.after                                  # 'gate.calls', '0', '1'

Containers, arrays, tensors, generators and objects with attributes are looked into. Limits: globals, closures and
attributes of classes are not seen, nor are objects of C code, of torch's own classes and of libraries that run threads.
Of a state with more than `MOST` leaves the rest is not looked at, nor what lies at the end of a long chain of objects.
"""

import hashlib
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice, zip_longest
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

MOST = 100_000
"""Leaves that are looked at: a tokenizer's vocabulary, say, takes a tenth of a second."""
_SHOWN = 40
"""Characters of a value in a message."""
_LONGEST = 1000
"""Characters of a name: what lies deeper, in a chain of objects, is not looked at."""
_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
_OPAQUE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
_OPAQUE_PACKAGES = {"torch", "unisono", "logging", "threading", "concurrent", "multiprocessing", "asyncio", "weakref"}
"""Their objects change for reasons of their own: caches, locks, threads."""
_TORCHS = frozenset(vars(nn.Module()))
"""What every module has: parameters, buffers, submodules, hooks, `training`."""


class Leaf(NamedTuple):
    """One value inside an attribute."""

    name: str
    bits: bytes
    shown: str


class Change(NamedTuple):
    """A leaf that differs between two states, and how it is shown in each."""

    name: str
    before: str
    after: str


State = list[Leaf]


def module_attributes(module: nn.Module) -> State:
    """The leaves of all submodules, in the order in which the module lists them."""
    known = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    return list(islice(_leaves(module, known | {id(part) for part in module.modules()}), MOST))


def first_change(before: State, after: State) -> Change | None:
    """The first leaf that differs, or None."""
    if before == after:
        return None
    known = {leaf.name: leaf for leaf in before}
    for one, other in zip_longest(before, after):
        if one == other:
            continue
        if other is None:
            return Change(one.name, one.shown, "not there")
        found = known.get(other.name)
        if found is None or found != other:
            return Change(other.name, "not there" if found is None else found.shown, other.shown)
    return None


def bits_of(value: Any) -> bytes:
    """A digest of a value: an output of a module, say."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in _walk([("", value)], set()):
        digest.update(leaf.name.encode() + leaf.bits)
    return digest.digest()


def _leaves(module: nn.Module, known: set[int]) -> Iterator[Leaf]:
    for path, part in module.named_modules():
        own = [(f"{path}.{name}" if path else name, value) for name, value in vars(part).items() if name not in _TORCHS]
        yield from _walk(own, known)


def _walk(values: Iterable[tuple[str, Any]], known: set[int]) -> Iterator[Leaf]:
    """Depth first, with a list instead of recursion: objects may be chained. What is in `known` is left out; what was
    met before is not entered again."""
    left = list(values)[::-1]
    met = set(known)
    kept = []  # an object that is freed on the way would give its id to another
    while left:
        name, value = left.pop()
        if id(value) in known:
            continue
        if isinstance(value, _NUMBERS):
            yield Leaf(name, repr(value).encode(), repr(value)[:_SHOWN])
        elif id(value) not in met:
            met.add(id(value))
            kept.append(value)
            try:
                inner = _inside(name, value)
            except Exception:  # of an object that does not let itself be looked at
                inner = Leaf(name, type(value).__qualname__.encode(), type(value).__qualname__)
            if isinstance(inner, Leaf):
                yield inner
            else:
                yield Leaf(f"len({name})", str(inner.length).encode(), str(inner.length))
                left.extend(inner.first[::-1])


class Inner(NamedTuple):
    """What a container holds: how many, and the first of them, by name."""

    length: int
    first: list[tuple[str, Any]]


def _inside(name: str, value: Any) -> Leaf | Inner:
    """What a value consists of, or a leaf if it cannot be looked into."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return _array(name, value)
    if isinstance(value, Mapping):
        return Inner(len(value), [(f"{name}[{_key(key)}]", each) for key, each in islice(value.items(), MOST)])
    if isinstance(value, list | tuple | deque):
        return Inner(len(value), [(f"{name}[{number}]", each) for number, each in enumerate(islice(value, MOST))])
    if isinstance(value, set | frozenset):
        keys = sorted(map(_key, value)) if len(value) <= MOST else []
        return Inner(len(value), [(f"{name}[...]", key) for key in keys])
    if isinstance(value, torch.Generator):
        return _array(name, value.get_state())
    if isinstance(value, random.Random | np.random.RandomState):
        place = value.getstate() if isinstance(value, random.Random) else value.get_state(legacy=False)
        return Leaf(name, repr(place).encode(), type(value).__name__)
    if isinstance(value, np.random.Generator):
        return Leaf(name, repr(value.bit_generator.state).encode(), "Generator")
    if isinstance(value, count | range | slice):
        return Leaf(name, repr(value).encode(), repr(value))
    kind = type(value)
    opaque = isinstance(value, _OPAQUE) or kind.__module__.partition(".")[0] in _OPAQUE_PACKAGES
    attributes = {} if opaque and not isinstance(value, nn.Module) else _attributes(value)
    if not attributes or len(name) > _LONGEST:
        return Leaf(name, kind.__qualname__.encode(), kind.__qualname__)
    return Inner(len(attributes), [(f"{name}.{key}", each) for key, each in attributes.items()])


def _attributes(value: Any) -> dict[str, Any]:
    slots = {name for kind in type(value).__mro__ for name in _names(vars(kind).get("__slots__", ()))}
    found = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _names(slots: str | Iterable[str]) -> tuple[str, ...]:
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))


def _key(key: Any) -> str:
    """Not the text of any object: that may hold its address."""
    return repr(key)[:_SHOWN] if isinstance(key, _NUMBERS) else f"<{type(key).__name__}>"


def _array(name: str, value: Any) -> Leaf:
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        plain = array if array.dtype.kind != "O" else np.array(repr(array.tolist()))
        return _leaf_of_bytes(name, f"array of shape {array.shape}, {array.dtype}", plain)
    about = f"tensor of shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    if value.device.type != "cpu" or value.layout != torch.strided or value.is_quantized:
        return Leaf(name, about.encode(), about)
    plain = value.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy()
    if value.numel() == 1:
        return _leaf_of_bytes(name, f"{about}: {value.item()}", plain)
    return _leaf_of_bytes(name, about, plain)


def _leaf_of_bytes(name: str, about: str, array: np.ndarray) -> Leaf:
    digest = hashlib.blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, digest_size=16)
    digest.update(about.encode())
    return Leaf(name, digest.digest(), about)
