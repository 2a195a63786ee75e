"""Parameters that no shard of a step used: their gradient is not zero but missing, and optimizers must leave them be.

The one idea: update everything, and put back what should not have changed. It is rare, and exact.

    with left_alone([params, *state], ranges, unused): optimizer.update(params, gradient, state, ...)

Limits: Adam's count of steps is one for all parameters, and goes on for those that are left alone, where torch keeps
one for each: when such a parameter is used again, its averages are corrected as if they were as old as the run.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from unisono.strategies.contributions import Ranges


@contextmanager
def left_alone(vectors: Sequence[np.ndarray], ranges: Ranges, unused: np.ndarray) -> Iterator[None]:
    """Chunks of equal length; `ranges` tells which elements are which parameter's, unused[parameter] whether to keep
    them. What weight decay and momentum would do to them does not happen."""
    kept = [
        (vector[low:high], vector[low:high].copy())
        for low, high, parameter in ranges
        if unused[parameter]
        for vector in vectors
    ]
    yield
    for place, values in kept:
        place[...] = values
