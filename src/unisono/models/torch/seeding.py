"""Random numbers of torch by key: the same draws for a shard, whichever rank computes it and whatever came before.

The one idea: torch's own generator of the CPU is seeded anew for every shard, from the shard's keyed stream; modules
draw from it as they always do.

    seed_from(noise(shard)); module(x)                       # dropout is the shard's
    with seeded(7): module = make()                          # the process's generators are as they were afterwards

`torch.default_generator.manual_seed` takes a microsecond, `torch.manual_seed` a hundred: it also looks after devices.
Limits: a module that draws from a generator of its own, or from NumPy's or Python's, draws by rank, not by shard.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_from(rng: np.random.Generator) -> None:
    """Seeds torch's generator with 64 bits of `rng`."""
    torch.default_generator.manual_seed(_bits(rng))


@contextmanager
def seeded(seed: int | np.random.Generator) -> Iterator[None]:
    """Within it torch's, NumPy's old and Python's generators are seeded: factories use whichever they like."""
    number = _bits(seed) if isinstance(seed, np.random.Generator) else seed
    torch_state, numpy_state, state = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(state)


def _bits(rng: np.random.Generator) -> int:
    return int(rng.bit_generator.random_raw())  # a sixth of the time of `integers`
