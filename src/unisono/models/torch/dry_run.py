"""Dry run: forward passes of a new module on made-up samples, before any process starts.

The one idea: what a module does to its state is observed rather than guessed. The dry run finds buffers that training
changes, and refuses what cannot be trained: an output of the wrong shape, a forward that writes into parameters, or one
that depends on the calls before it.

    result = dry_run(module, task, find("fp32"), make); result.changed       # {"1.running_mean", "1.running_var", ...}

Two calls, with the same samples. For a module whose attributes they change, three more: other samples, the first ones
again, and the others as the first call of another module.

Calls must be repeatable (`check_same`), because ranks call a module in different numbers and orders, and a replaced or
resumed process starts anew: the same samples, from the same buffers and random numbers, must give the same output and
leave the same attributes behind. An attribute that only shows the last call (`self.attention = ...`) does; a counter
does not. `module_attributes.py` says what is compared.

Limits: made-up samples say nothing of the values of real ones, and a buffer that is first changed by a later step is
not found here (it is taken from shard 0 then, instead of averaged). State that is kept elsewhere (globals, closures) is
seen only if the output differs; an effect that begins after these calls is not seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.torch.checks import check_graph
from unisono.models.torch.learning_task import Task
from unisono.models.torch.module_attributes import Change, State, bits_of, first_change, module_attributes
from unisono.models.torch.precision import Precision
from unisono.models.torch.random_state import Kinds, drawn_since, generator_states, restore_states

_WHY = (
    "ranks call the module in different numbers and orders, so each number of ranks would train another network, and a "
    "replaced or resumed process would start anew"
)
_BUFFER = (
    "keep it in a buffer (self.register_buffer(name, tensor), changed in place in forward), which every shard starts "
    "from and snapshots hold; or compute it from the inputs. What only you look at belongs outside the module"
)


class CallOutcome(NamedTuple):
    """What a call gave, and what it left behind."""

    output: bytes
    state: State
    draws: Kinds
    """The generators of random numbers that it drew from."""


@final
class Start:
    """A module's buffers and the generators of random numbers as they are now; every `run` starts from them."""

    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        self._module, self._call = module, call
        self._buffers = [
            (part._buffers, name, buffer, buffer.detach().clone())
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]
        self._places = generator_states()
        self.state = module_attributes(module)

    def restore(self) -> None:
        """The buffers and generators as they were."""
        for owner, name, buffer, value in self._buffers:
            owner[name] = buffer
            with torch.no_grad():
                buffer.copy_(value)
        restore_states(self._places)

    def outcome(self, output: Any) -> CallOutcome:
        return CallOutcome(bits_of(output), module_attributes(self._module), drawn_since(self._places))

    def run(self, x: torch.Tensor) -> CallOutcome:
        """One call with a copy of these samples: it may write into them."""
        self.restore()
        return self.outcome(self._call(x.clone()))


def check_same(module: nn.Module, start: Start, first: CallOutcome, again: CallOutcome) -> None:
    """Two calls with the same samples: a `UserError` that names what was kept from the calls between."""
    change = first_change(first.state, again.state)
    if change is not None:
        # What a user looks for is the value before the first call; it is the same for a value that is set once.
        before = first_change(start.state, first.state)
        shown = before if before is not None and before.name == change.name else change
        raise _refusal(module, shown)
    if first.draws != again.draws:
        raise UserError(
            f"{type(module).__name__} draws random numbers in one call and not in the next with the same samples: it "
            f"keeps what it has drawn, or counts its calls; {_WHY}",
            hint=f"draw in every call, or once, in __init__. {_BUFFER}",
        )
    if first.output != again.output:
        raise UserError(
            f"{type(module).__name__} gave two outputs for the same samples, parameters, buffers and random numbers: "
            f"it keeps something from call to call that is not seen, or draws from a generator of its own; {_WHY}",
            hint="look for globals, closures and caches; draw from torch's generator (torch.rand), and for what must "
            f"be kept: {_BUFFER}",
        )


def _refusal(module: nn.Module, change: Change) -> UserError:
    length = change.name.startswith("len(")
    name = change.name.removeprefix("len(").removesuffix(")") if length else change.name
    # The module itself has the empty path, which begins every name.
    path = max((path for path, _ in module.named_modules() if name.startswith(f"{path}.") or not path), key=len)
    kind = type(module.get_submodule(path)).__name__
    where = f"{kind} ({path!r} of {type(module).__name__})" if path else kind
    what = "a length of " if length else ""
    values = f"{what}{change.before} before a call, {change.after} after it"
    if change.before == change.after:
        values = f"{change.before}, with other values after a call"
    attribute = name.removeprefix(f"{path}.") if path else name
    return UserError(f"{where} keeps state in the attribute {attribute!r}: {values}; {_WHY}", hint=_BUFFER)


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
