"""Call history: whether what a module computes depends on the calls before, beyond its parameters and buffers.

The one idea: ranks call a module in different numbers and orders, and a replaced or resumed process starts anew. So the
same samples, from the same buffers and random numbers, must give the same output and leave the same attributes behind.
An attribute that only shows the last call (`self.attention = ...`) does; a counter does not.

    start = Start(module, lambda x: module(x)); check_same(module, start, start.run(x), start.run(x))

Limits: what is kept elsewhere (globals, closures) is seen only if the output differs, and so is an effect that begins
after these calls. `python_state.py` says what is looked at.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import nn

from unisono.errors import UserError
from unisono.models.torch.python_state import Change, State, bits_of, first_change, python_state
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
        self.state = python_state(module)

    def restore(self) -> None:
        """The buffers and generators as they were."""
        for owner, name, buffer, value in self._buffers:
            owner[name] = buffer
            with torch.no_grad():
                buffer.copy_(value)
        restore_states(self._places)

    def outcome(self, output: Any) -> CallOutcome:
        return CallOutcome(bits_of(output), python_state(self._module), drawn_since(self._places))

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
        told = before if before is not None and before.name == change.name else change
        raise _refusal(module, told)
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
