"""Holding a validation part out of the training part.

The one idea: who is held out depends on the seed and the number of samples alone. Both parts keep the order of the
source.

>>> kept, held = cut(10, 0.3, seed=0)
>>> len(kept), len(held), sorted([*kept, *held]) == list(range(10))
(7, 3, True)

Limits: not stratified; small data may leave a rare class on one side only.
"""

import numpy as np

from unisono.errors import UserError
from unisono.rng import generator


def cut(samples: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(kept, held out): the indices of both parts, each ascending."""
    if not 0 <= fraction < 1:
        raise UserError(
            f"the validation part is {fraction:g} of the training part",
            hint="give a fraction from 0 to below 1, as 0.1",
        )
    count = round(samples * fraction)
    if fraction and not 0 < count < samples:
        raise UserError(
            f"{fraction:g} of {samples} training samples are {count} for validation and {samples - count} for training",
            hint="choose a fraction that leaves both parts some, or give more data",
        )
    order = generator(seed, "split").permutation(samples)
    return np.sort(order[count:]), np.sort(order[:count])
