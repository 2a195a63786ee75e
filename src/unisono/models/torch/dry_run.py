"""Dry run: forward passes of a new module on made-up samples, before any process starts.

The one idea: what a module does to its state is seen rather than guessed. Buffers that training changes are found, and
so is what cannot be trained: an output of the wrong shape, a forward that writes into parameters, one that depends on
the calls before it.

    result = dry_run(module, task, find("fp32"), make); result.changed       # {"1.running_mean", "1.running_var", ...}

Two calls, with the same samples. For a module whose attributes they change, three more: other samples, the first ones
again, and the others as the first call of another module.

Limits: made-up samples say nothing of the values of real ones, and a buffer that is first changed by a later step is
not found here (it is taken from shard 0 then, instead of averaged).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.torch.call_history import CallOutcome, Start, check_same
from unisono.models.torch.checks import check_graph
from unisono.models.torch.precision import Precision
from unisono.models.torch.random_state import Kinds, drawn_since, generator_states
from unisono.models.torch.task import Task

SAMPLES = 2
"""One would not do for batch norm."""


@final
@dataclass(frozen=True)
class DryRunResult:
    """What a module does when it is called in training mode."""

    changed: set[str]
    """The names of the buffers that it changes."""
    draws: Kinds
    """The generators that it draws random numbers from, for dropout say."""


def dry_run(module: nn.Module, task: Task, precision: Precision, make: Callable[[], nn.Module]) -> DryRunResult:
    """The samples, and what the module draws itself, come from torch's generator. `make` builds such a module anew."""
    buffers, parameters = dict(module.named_buffers()), dict(module.named_parameters())
    versions = {name: tensor._version for name, tensor in parameters.items()}
    # By value: torch's batch norm does not count what it writes.
    values = {name: _bits(tensor) for name, tensor in buffers.items()}
    x, other = _made_up(task), _made_up(task, 1)
    before = generator_states()
    start = Start(module.train(), partial(precision.forward, module))
    z = precision.forward(module, x.clone())
    _check_output(module, z, task)
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
    result = DryRunResult(
        {name for name, tensor in now.items() if _bits(tensor) != values[name]}, draws=drawn_since(before)
    )
    first = start.outcome(z)
    check_same(module, start, first, start.run(x))
    if first.state != start.state:
        late = start.run(other)
        check_same(module, start, first, start.run(x))
        fresh = make()
        start.restore()  # the generators, too, which the function has drawn from
        _check_first(module, fresh, precision, other, late)
    return result


def _check_first(module: nn.Module, fresh: nn.Module, precision: Precision, x: Tensor, late: CallOutcome) -> None:
    """`late` is the outcome of samples that were not the module's first: they must be no other if they are."""
    for mine, other in ((module.parameters(), fresh.parameters()), (module.buffers(), fresh.buffers())):
        for one, tensor in zip(mine, other, strict=True):
            tensor.data.copy_(one)
    start = Start(fresh.train(), partial(precision.forward, fresh))
    check_same(module, start, start.run(x), late)


def _made_up(task: Task, token: int = 0) -> Tensor:
    if task.tokens:
        return torch.full((SAMPLES, *task.input_shape), min(token, task.outputs - 1))
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
