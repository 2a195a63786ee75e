"""Random numbers by key: the same draws for a shard, whichever rank computes it and whatever came before.

The one idea: the generators that a module draws from, as it always does, are seeded anew for every shard, from the
shard's keyed stream. Mostly that is torch's own for the CPU; NumPy's old one and Python's take longer to seed and to
look at, so that is done only for modules that have been seen to use them.

    before = generator_states(); module(x); kinds = drawn_since(before)   # frozenset({"torch"}): it has dropout
    seed_from(noise(shard), kinds); module(x)                  # what it draws is the shard's
    with seeded(7): module = make()                            # the generators are as they were afterwards

`torch.default_generator.manual_seed` takes a microsecond, `torch.manual_seed` a hundred: it also looks after devices.
Limits: a module that draws from a generator of its own would draw by rank: the dry run refuses it (`dry_run.py`).
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

Kinds = frozenset[str]
TORCH: Kinds = frozenset({"torch"})
NAMES: Mapping[str, str] = {"torch": "torch", "numpy": "NumPy", "python": "Python"}
ALL: Kinds = frozenset(NAMES)
_GET: Mapping[str, Callable[[], Any]] = {
    "torch": torch.default_generator.get_state,
    "numpy": np.random.get_state,
    "python": random.getstate,
}
_SET: Mapping[str, Callable[[Any], Any]] = {
    "torch": torch.default_generator.set_state,
    "numpy": np.random.set_state,
    "python": random.setstate,
}


def generator_states(kinds: Kinds = ALL) -> dict[str, Any]:
    """Where the generators are in their streams."""
    return {kind: _GET[kind]() for kind in kinds}


def restore_states(before: Mapping[str, Any]) -> None:
    """They go on from these places."""
    for kind, place in before.items():
        _SET[kind](place)


def drawn_since(before: Mapping[str, Any]) -> Kinds:
    """Those that have drawn since."""
    return frozenset(kind for kind, place in before.items() if not _same(_GET[kind](), place))


def seed_from(
    rng: np.random.Generator, kinds: Kinds = TORCH, torchs: torch.Generator = torch.default_generator
) -> None:
    """Seeds generators of these kinds with 64 bits of `rng`; torchs: torch's, of the device that computes."""
    number = _bits(rng)
    if "torch" in kinds:
        torchs.manual_seed(number)
    if "numpy" in kinds:
        np.random.seed(number % 2**32)
    if "python" in kinds:
        random.seed(number)


@contextmanager
def seeded(seed: int | np.random.Generator) -> Iterator[None]:
    """Within it all of them are seeded: factories use whichever they like."""
    number = _bits(seed) if isinstance(seed, np.random.Generator) else seed
    before = generator_states()
    torch.default_generator.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)
    try:
        yield
    finally:
        restore_states(before)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    # Of NumPy's, the name, an array and numbers; of Python's, numbers.
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _bits(rng: np.random.Generator) -> int:
    return int(rng.bit_generator.random_raw())  # a sixth of the time of `integers`
