"""A trial: one forward pass of a new module on made-up samples, before any process starts.

The one idea: what a module does to its state is seen rather than guessed. Buffers that training changes are found, and
so is what cannot be trained: an output of the wrong shape, a forward that writes into parameters.

    habits = try_out(module, task, find("fp32")); habits.changed       # {"1.running_mean", "1.running_var", ...}

Limits: made-up samples say nothing of the values of real ones, and a buffer that is first changed by a later step is
not found here (it is taken from shard 0 then, instead of averaged).
"""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.torch.graphs import check_graph
from unisono.models.torch.precision import Precision
from unisono.models.torch.seeding import Kinds, moved, places
from unisono.models.torch.task import Task

SAMPLES = 2
"""One would not do for batch norm."""


@final
@dataclass(frozen=True)
class Habits:
    """What a module does when it is called in training mode."""

    changed: set[str]
    """The names of the buffers that it changes."""
    draws: Kinds
    """The generators that it draws random numbers from, for dropout say."""


def try_out(module: nn.Module, task: Task, precision: Precision) -> Habits:
    """Calls the module once. The samples, and what it draws itself, come from torch's generator."""
    buffers, parameters = dict(module.named_buffers()), dict(module.named_parameters())
    versions = {name: tensor._version for name, tensor in parameters.items()}
    # By value: torch's batch norm does not count what it writes.
    values = {name: _bits(tensor) for name, tensor in buffers.items()}
    x = _made_up(task)
    before = places()
    _check_output(module, precision.forward(module.train(), x), task)
    for name, parameter in parameters.items():
        if parameter._version != versions[name]:
            raise UserError(
                f"{_kind(module)} writes into its parameter {name!r} when it is called: ranks share parameters and "
                "would disturb each other",
                hint="keep what the forward changes in a buffer: register_buffer",
            )
    now = dict(module.named_buffers())
    if now.keys() != buffers.keys():
        raise UserError(
            f"{_kind(module)} makes or removes buffers when it is called: {', '.join(sorted(now.keys() ^ buffers))}",
            hint="register them in __init__",
        )
    changed = {name for name, tensor in now.items() if _bits(tensor) != values[name]}
    return Habits(changed, draws=moved(before))


def _made_up(task: Task) -> Tensor:
    if task.tokens:
        return torch.zeros((SAMPLES, *task.input_shape), dtype=torch.int64)
    return torch.rand((SAMPLES, *task.input_shape))


def _check_output(module: nn.Module, z: Any, task: Task) -> None:
    given, wanted = (SAMPLES, *task.input_shape), (SAMPLES, *task.output_shape)
    if not isinstance(z, Tensor):
        raise UserError(
            f"{_kind(module)} returned {type(z).__name__}, not a tensor",
            hint="return the outputs alone",
        )
    if z.shape != wanted:
        raise UserError(
            f"{_kind(module)} made {tuple(z.shape)} of samples {given}; these data need {wanted}",
            hint=f"end with {task.outputs} outputs for each {'token' if task.tokens else 'sample'}",
        )
    if not z.is_floating_point() or not z.requires_grad:
        raise UserError(
            f"the output of {_kind(module)} has no gradient",
            hint="it should depend on a trained parameter; no detach()",
        )
    check_graph(z)


def _bits(tensor: Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


def _kind(module: nn.Module) -> str:
    return type(module).__name__
