"""Shapes that a file gives: whether NumPy can have such an array, and how many elements it holds.

The one idea: a shape is a claim. It is compared with what NumPy can have before anything is made of it; whoever reads
the file then compares the number of elements with the bytes that are there.

>>> count_elements((3, 4))
12

Limits: nothing is said of memory; see `resources.check_memory`.
"""

import math
from collections.abc import Sequence

MOST_DIMENSIONS, MOST_ELEMENTS = 32, 1 << 48


def count_elements(shape: Sequence[int]) -> int:
    """The elements of an array of that shape; a `ValueError` with a plain reason if there cannot be one."""
    if len(shape) > MOST_DIMENSIONS:
        raise ValueError(f"an array of {len(shape)} dimensions; at most {MOST_DIMENSIONS} are read")
    # Zeros count as ones: NumPy multiplies the other lengths even if there is nothing in the array.
    if any(n < 0 for n in shape) or math.prod(max(n, 1) for n in shape) > MOST_ELEMENTS:
        raise ValueError(f"an array of shape {_short(shape)}; lengths are from 0, their product at most 2**48")
    return math.prod(shape)


def _short(shape: Sequence[int]) -> str:
    return str([n if abs(n) < 1 << 64 else f"{'-' * (n < 0)}2**64 or more" for n in shape])[:200]
