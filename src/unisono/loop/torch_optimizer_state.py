"""The state of a torch optimizer as that of ours, and back: checkpoints are torch's, saved and loaded on either side.

The one idea: what torch keeps for each parameter differs from our flat vectors by constant factors alone (`optim/`):

    gradient_sum = exp_avg / (1 - beta1)    square_sum = exp_avg_sq / (1 - beta2)    momentum = momentum_buffer

    given = read_state(optimizer, names, layout); given.vectors, given.steps         # one vector a name; Adam's count
    state = torch_state(given, layout, entries)                                      # {0: {"step": ..., "exp_avg": ...

A product and a quotient need not give back every bit. So each of torch's tensors has another beside it, `..._ulps`,
which says by how many float32 numbers the way back misses: torch keeps it and does not look at it. Under `UNISONO`,
which is no parameter, lie the steps at which these hold, and the epochs that were begun.

Adam counts the steps of each parameter: what one has fewer than others it has missed
(`strategies/unused_parameters.py`). Limits: numbers below 1e-38 come back to the last bit only for betas up to 0.99998.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch

from unisono.errors import UserError
from unisono.models.base import Layout

UNISONO = "unisono"
_SUMS = {"exp_avg": "gradient_sum", "exp_avg_sq": "square_sum"}
"""torch's name -> ours."""
_ULPS = "_ulps"
_KNOWN = {"step", "momentum_buffer", *_SUMS, *(name + _ULPS for name in _SUMS)}


class Entry(NamedTuple):
    """A parameter in an optimizer: its name in the model, its shape, and the group that it is in."""

    name: str
    shape: tuple[int, ...]
    group: Mapping[str, Any]


@final
@dataclass(frozen=True)
class LoadedState:
    """`vectors`: (length,) float32 by the names of our optimizer's state; `steps` that were made, at most."""

    vectors: dict[str, np.ndarray]
    steps: int
    missed: np.ndarray
    """(parameters,) int64: how many of them each parameter did not make."""
    epochs: int = 0
    """That were begun, if a shared optimizer saved it."""


def read_state(optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.Tensor], layout: Layout) -> LoadedState:
    """Nothing for an optimizer that was never stepped, and into which nothing was loaded."""
    names = {id(parameter): name for name, parameter in trained.items()}
    found = [
        (Entry(names[id(parameter)], tuple(parameter.shape), group), optimizer.state.get(parameter) or {})
        for group in optimizer.param_groups
        for parameter in group["params"]
        if id(parameter) in names
    ]
    return read_entries(found, optimizer.state.get(UNISONO) or {}, layout)  # type: ignore[call-overload]


def read_entries(
    entries: Iterable[tuple[Entry, Mapping[str, Any]]], about: Mapping[str, int], layout: Layout
) -> LoadedState:
    """about: what stands under `UNISONO`; nothing of a checkpoint of torch's own."""
    found = [(entry, state) for entry, state in entries if state]
    vectors: dict[str, np.ndarray] = {}
    places = {name: place for place, name in enumerate(layout.shapes)}
    counts = np.zeros(len(places), np.int64)
    for entry, state in found:
        _check(entry, state)
        counts[places[entry.name]] = int(state.get("step", about.get("steps", 0)))
    steps = int(counts.max(initial=0))
    exact = steps == about.get("steps")  # else torch has made steps since
    for entry, state in found:
        for ours, values in _translated(state, entry.group, exact=exact).items():
            vector = vectors.setdefault(ours, np.zeros(layout.length, np.float32))
            layout.views(vector)[entry.name][...] = values.numpy()
    counted = any("step" in state for _, state in found)
    missed = steps - counts if counted else np.zeros_like(counts)
    return LoadedState(vectors, steps if found else about.get("steps", 0), missed, about.get("epochs", 0))


def check_state(given: LoadedState, names: Iterable[str]) -> None:
    """A `UserError` for that of another kind of optimizer; names: what this one keeps."""
    if given.vectors and given.vectors.keys() != set(names):
        kept = ", ".join(names) or "nothing"
        raise UserError(
            f"the optimizer's state has {', '.join(given.vectors)}; this optimizer keeps {kept}",
            hint="load the state that an optimizer of the same kind saved for the same model",
        )


def torch_state(given: LoadedState, layout: Layout, entries: Mapping[int, Entry]) -> dict[Any, dict[str, Any]]:
    """The same as torch saves it: a dict for each of the parameters, by their numbers, which torch loads."""
    state: dict[Any, dict[str, Any]] = {UNISONO: {"steps": given.steps, "epochs": given.epochs}}
    if not given.steps:
        return state
    views = {name: layout.views(vector) for name, vector in given.vectors.items()}
    missed = dict(zip(layout.shapes, given.missed.tolist(), strict=True))
    for number, entry in entries.items():
        own = {name: torch.from_numpy(view[entry.name].copy()) for name, view in views.items()}
        if "momentum" in own:
            state[number] = {"momentum_buffer": own["momentum"]}
        elif own:
            step = torch.tensor(given.steps - missed[entry.name], dtype=torch.float64)
            state[number] = {"step": step}
            for (name, ours), factor in zip(_SUMS.items(), _factors(entry.group), strict=True):
                mean = (own[ours].double() * factor).float()
                off = own[ours].view(torch.int32) - (mean.double() / factor).float().view(torch.int32)
                state[number] |= {name: mean, name + _ULPS: off.clamp(-(2**15), 2**15 - 1).to(torch.int16)}
    return state


def _check(entry: Entry, found: Mapping[str, Any]) -> None:
    strange = {key for key, value in found.items() if key not in _KNOWN and value is not None}
    shapes = {key: tuple(v.shape) for key, v in found.items() if key != "step" and isinstance(v, torch.Tensor)}
    if strange or any(shape != entry.shape for shape in shapes.values()):
        told = f"has {', '.join(sorted(strange))}" if strange else f"is of shape {sorted(set(shapes.values()))}"
        raise UserError(
            f"the optimizer's state of {entry.name!r} {told}, which is not that of SGD, Adam or AdamW for a parameter "
            f"of shape {entry.shape}",
            hint="load the state that an optimizer of the same kind saved for the same model",
        )


def _translated(found: Mapping[str, Any], group: Mapping[str, Any], *, exact: bool) -> dict[str, torch.Tensor]:
    """By our names. Computed in float64, and rounded once."""
    if found.get("momentum_buffer") is not None:
        return {"momentum": found["momentum_buffer"].float()}
    if "exp_avg" not in found:
        return {}
    translated = {}
    for (name, ours), factor in zip(_SUMS.items(), _factors(group), strict=True):
        values = (found[name].double() / factor).float()
        if exact and name + _ULPS in found:
            values = (values.view(torch.int32) + found[name + _ULPS].to(torch.int32)).view(torch.float32)
        translated[ours] = values
    return translated


def _factors(group: Mapping[str, Any]) -> tuple[float, float]:
    beta1, beta2 = group["betas"]
    return 1 - beta1, 1 - beta2
