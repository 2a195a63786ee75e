"""Guard: the parameters as they were shared, and whether they still are.

The one idea: ranks share one copy at one address, so whoever writes to a parameter, moves it, replaces it, freezes or
thaws it after `world.share` would train something else than the others. torch counts writes; addresses are compared.

    guard = Guard(model); guard.check()              # nothing, or a UserError: parameter 'head.weight' was written ...

Limits: writes through `p.data` and through NumPy are not counted by torch, and not seen. A parameter that takes the
place of another is seen when the next pass over the data begins.
"""

from typing import final

from torch import nn

from unisono.errors import UserError


@final
class Guard:
    """Made when the module lies where it will stay."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known = [
            (name, parameter, parameter._version, parameter.data_ptr(), parameter.requires_grad)
            for name, parameter in model.named_parameters()
        ]

    def check(self) -> None:
        """Before a batch's gradients and before its update; a few hundred nanoseconds a parameter."""
        for name, parameter, version, address, trained in self._known:
            if parameter._version != version:
                raise UserError(
                    f"parameter {name!r} was written outside optimizer.step(): ranks share one copy of it",
                    hint="load and initialise parameters before world.share; between steps leave them alone",
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
