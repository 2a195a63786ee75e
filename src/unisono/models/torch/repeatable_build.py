"""Whether a function that builds a module builds the same one again: the starting values are the recipe's, by its seed.

The one idea: call it twice with every generator seeded alike, and compare bits. What differs was drawn elsewhere (from
the clock, from a generator without a seed), and would differ between ranks, between runs and after a restart.

    notes = check_repeats(partial(own, outputs=10), "mine.py:net")            # [], or what to tell the user

Limits: a seed that is equal in both calls (the second, the process's number) is not seen to differ; that the function
seeds torch's generator itself is seen, and said. Replicas compare what they start from (`strategies/messages/base.py`).
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest

import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.torch.random_state import seeded

_SEED = 0x756E69736F6E6F
"""One that nobody else would choose."""


def check_repeats(make: Callable[[], nn.Module], what: str) -> list[str]:
    """Notes for the user; a `UserError` that names the first tensor that is not the same again."""
    with seeded(_SEED):
        first = make()
        own_seed = torch.initial_seed() != _SEED
    with seeded(_SEED):
        second = make()
    known = {id(tensor) for _, tensor in _learnt(first)}
    for name, tensor in _learnt(second):
        if id(tensor) in known:
            raise UserError(
                f"{what} was called twice, and {name} of the second module is that of the first: networks that are to "
                "be apart would change each other's",
                hint="build it inside the function, or return copy.deepcopy(...) of what was built before",
            )
    for one, other in zip_longest(_tensors(first), _tensors(second), fillvalue=("nothing", b"")):
        if one != other:
            which = f"{one[0]} is not the same again" if one[0] == other[0] else f"{one[0]}, then {other[0]}"
            raise UserError(
                f"{what} was called twice with the same seed: {which}; ranks and runs would start from other weights",
                hint="draw from torch, NumPy (np.random) or random as they are: they are seeded from --seed; leave out "
                "torch.seed(), manual_seed(time...) and generators without a seed",
            )
    if own_seed:
        return [
            f"Note: {what} seeds torch's generator itself: --seed does not decide the starting weights, and runs start "
            "alike only if that seed is always the same."
        ]
    return []


def _learnt(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What training changes, or may."""
    yield from ((f"parameter {name!r}", tensor) for name, tensor in module.named_parameters() if tensor.requires_grad)
    yield from ((f"buffer {name!r}", tensor) for name, tensor in module.named_buffers())


def _tensors(module: nn.Module) -> Iterator[tuple[str, bytes]]:
    """Name and bits of each."""
    for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in tensors:
            yield f"{kind} {name!r} {tuple(tensor.shape)}", tensor.detach().numpy().tobytes()
