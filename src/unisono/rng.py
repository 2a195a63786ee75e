"""Keyed random streams: (seed, purpose, key) -> generator, whoever asks, in whatever order.

The one idea: a random number belongs to a place in the run (epoch, step, shard), never to a rank or to how many numbers
were drawn before. The tuple is hashed (BLAKE2b) to the 128-bit key of a Philox counter, so streams of different tuples
are independent, and a rank that takes over a shard draws what the lost rank would have drawn.

>>> float(generator(1, "dropout", 0, 7, 3).random()) == float(generator(1, "dropout", 0, 7, 3).random())
True

Limits: the raw bits (`bit_generator.random_raw`) are the same on every machine and NumPy; what NumPy makes of them it
does not promise for ever. `random`, `uniform`, `bytes`, `integers`, `permutation`, `shuffle` and `standard_normal` gave
equal numbers in NumPy 1.26, 2.0 and 2.4, and the tests hold stored ones: draw with these. `standard_normal` asks the C
library for an exponential about once in a hundred numbers, so another C library could differ in a last bit there. The
other distributions are built from more such parts: avoid them where bits count.
"""

from hashlib import blake2b
from struct import error as StructError
from struct import pack
from typing import Any, Literal, final, get_args

import numpy as np
from numpy.random import Generator, Philox
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from unisono.errors import UserError, unknown_name

Purpose = Literal["init", "shuffle", "dropout", "split", "synthetic", "samples"]

_PREFIXES = {name: b"unisono %-16s" % name.encode() for name in get_args(Purpose)}
"""What is hashed before the numbers; of fixed width, so that no two tuples hash the same bytes."""


def generator(seed: int, purpose: Purpose, *key: int) -> Generator:
    """The stream of a purpose at a place; `seed` and each of `key` (epoch, step, shard ...) in 0 .. 2**64-1."""
    if purpose not in _PREFIXES:
        raise unknown_name("purpose of random numbers", purpose, _PREFIXES)
    try:
        numbers = pack(f"<{len(key) + 1}Q", seed, *key)
    except StructError:
        if not 0 <= seed < 2**64:
            raise UserError(f"--seed {seed}: out of range", hint="give a whole number from 0 to 2**64 - 1") from None
        raise ValueError(f"a random stream is keyed by whole numbers in 0 .. 2**64-1, not by {(seed, *key)}") from None
    # NumPy's annotations ask for SeedSequence, its code for the interface.
    return Generator(Philox(_Key(blake2b(_PREFIXES[purpose] + numbers, digest_size=16).digest())))  # type: ignore[arg-type]


@final
class _Key(ISeedSequence):
    """Hands the key to Philox as it is. `Philox(key=...)` does the same, but first asks the system for entropy, which
    takes longer than all the rest."""

    def __init__(self, digest: bytes) -> None:
        self._words: NDArray[np.uint64] = np.frombuffer(digest, "<u8")

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[np.uint64]:
        return self._words[:n_words].astype(dtype)
