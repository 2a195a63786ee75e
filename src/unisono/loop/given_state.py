"""The state that a torch optimizer has before it is shared, as that of ours: training goes on from a checkpoint.

The one idea: what torch keeps for each parameter differs from our flat vectors by constant factors alone (`optim/`):

    gradient_sum = exp_avg / (1 - beta1)    square_sum = exp_avg_sq / (1 - beta2)    momentum = momentum_buffer

    state = read_state(optimizer, names, layout); state.vectors, state.steps         # one vector a name; Adam's count

Adam counts the steps of each parameter: what one has fewer than others it has missed (`strategies/unused.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from unisono.errors import UserError
from unisono.models.base import Layout

_KNOWN = {"step", "exp_avg", "exp_avg_sq", "momentum_buffer"}


@final
@dataclass(frozen=True)
class GivenState:
    """`vectors`: (length,) float32 by the names of our optimizer's state; `steps` that were made, at most."""

    vectors: dict[str, np.ndarray]
    steps: int
    missed: np.ndarray
    """(parameters,) int64: how many of them each parameter did not make."""


def read_state(optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.Tensor], layout: Layout) -> GivenState:
    """Nothing for an optimizer that was never stepped, and into which nothing was loaded."""
    names = {id(parameter): name for name, parameter in trained.items()}
    vectors: dict[str, np.ndarray] = {}
    places = {name: place for place, name in enumerate(layout.shapes)}
    counts = np.zeros(len(places), np.int64)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            found, name = optimizer.state.get(parameter), names.get(id(parameter))
            if not found or name is None:
                continue
            _check(name, parameter, found)
            for ours, values in _translated(found, group).items():
                vector = vectors.setdefault(ours, np.zeros(layout.length, np.float32))
                layout.views(vector)[name][...] = values.numpy()
            if "step" in found:
                counts[places[name]] = int(found["step"])
    steps = int(counts.max(initial=0))
    return GivenState(vectors, steps, steps - counts)


def _check(name: str, parameter: torch.Tensor, found: Mapping[str, Any]) -> None:
    strange = {key for key, value in found.items() if key not in _KNOWN and value is not None}
    shapes = {key: tuple(v.shape) for key, v in found.items() if key != "step" and isinstance(v, torch.Tensor)}
    if strange or any(shape != tuple(parameter.shape) for shape in shapes.values()):
        told = f"has {', '.join(sorted(strange))}" if strange else f"is of shape {sorted(set(shapes.values()))}"
        raise UserError(
            f"the optimizer's state of {name!r} {told}, which is not that of SGD, Adam or AdamW for a parameter of "
            f"shape {tuple(parameter.shape)}",
            hint="load the state that an optimizer of the same kind saved for the same model",
        )


def _translated(found: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """By our names. Computed in float64, and rounded once."""
    if found.get("momentum_buffer") is not None:
        return {"momentum": found["momentum_buffer"].float()}
    if "exp_avg" not in found:
        return {}
    beta1, beta2 = group["betas"]
    return {
        "gradient_sum": (found["exp_avg"].double() / (1 - beta1)).float(),
        "square_sum": (found["exp_avg_sq"].double() / (1 - beta2)).float(),
    }
