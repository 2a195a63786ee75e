"""ParameterGuard: the parameters as they were shared, and whether they still are.

The one idea: ranks share one copy at one address, so whoever writes to a parameter, moves it, replaces it, freezes or
thaws it after `world.share` would train something else than the others. torch counts writes; addresses are compared.

    guard = ParameterGuard(model); guard.check()  # nothing, or a UserError: parameter 'head.weight' was written ...

The update itself is counted as a write, too (`settle`): a graph that was made before it is then refused by torch.

Limits: writes through `p.data` and through NumPy are not counted by torch, and not seen. A parameter that takes the
place of another is seen when the next pass over the data begins.
"""

from typing import final

from torch import nn
from torch.autograd.graph import increment_version

from unisono.errors import UserError
from unisono.loop.forbidden_grad import NoGradient
from unisono.loop.optimizers import AFTER_STEP

_WRITTEN = {
    True: "load and initialise parameters before world.share; between steps leave them alone",
    False: "keep averages and target networks in a module of their own, outside the shared one: code after "
    "optimizer.step() runs on every rank, so all of them change theirs alike",
}
"""By whether the parameter is trained."""


@final
class ParameterGuard:
    """Made when the module lies where it will stay."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known = [
            (name, parameter, parameter.data_ptr(), parameter.requires_grad)
            for name, parameter in model.named_parameters()
        ]
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in self._trained:
            parameter.grad = None  # of an earlier life
        self._versions = [parameter._version for parameter in model.parameters()]

    def settle(self) -> None:
        """The parameters were updated, in memory of which torch knows nothing."""
        increment_version(self._trained)
        self._versions = [parameter._version for _, parameter, *_ in self._known]

    def check_gradients(self) -> None:
        """Before gradients are computed, and before the update: whoever put one into `p.grad` is told so."""
        for name, parameter, _, trained in self._known:
            if not trained or isinstance(parameter.grad, NoGradient):
                continue
            if parameter.grad is not None:
                raise UserError(
                    f"parameter {name!r} was given a gradient outside world.backward, which would be lost: by "
                    "loss.backward() after zero_grad(), or p.grad = ...",
                    hint="add losses up and give their sum to world.backward, once for every shard",
                )
            parameter.grad = NoGradient.like(parameter)

    def check(self) -> None:
        """Before a batch's gradients and before its update; a few hundred nanoseconds a parameter."""
        for (name, parameter, address, trained), version in zip(self._known, self._versions, strict=True):
            if parameter._version != version:
                raise UserError(
                    f"parameter {name!r} was written outside optimizer.step(): ranks share one copy of it",
                    hint=_WRITTEN[trained],
                )
            if parameter.data_ptr() != address:
                raise UserError(
                    f"parameter {name!r} was moved out of the memory that ranks share: model.to(...), model.half() or "
                    "p.data = ... after world.share",
                    hint="do it before world.share; torch.autocast computes in 16 bits",
                )
            if parameter.requires_grad != trained:
                how = "unfrozen" if parameter.requires_grad else "frozen"
                raise UserError(
                    f"parameter {name!r} was {how} after world.share",
                    hint="decide what is trained before it; a learning rate of 0 keeps a group as it is for a while",
                )
            if parameter._post_accumulate_grad_hooks:
                raise UserError(
                    f"parameter {name!r} has a hook of register_post_accumulate_grad_hook, which would not be called: "
                    "no gradient is accumulated",
                    hint=f"use register_hook, which sees the gradient of a shard; or {AFTER_STEP}",
                )

    def check_module(self) -> None:
        """Before a pass over the data: the module has the parameters that it had."""
        found = {id(parameter): name for name, parameter in self._model.named_parameters()}
        known = {id(parameter): name for name, parameter, *_ in self._known}
        if found.keys() != known.keys():
            names = [found.get(each) or known[each] for each in found.keys() ^ known.keys()]
            raise UserError(
                f"parameters were added, removed or replaced after world.share: {', '.join(sorted(set(names)))}",
                hint="build the whole model, heads and adapters included, before world.share",
            )
