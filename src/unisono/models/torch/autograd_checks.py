"""Graphs of autograd that give no gradient here: re-entrant checkpoints, and losses that depend on no parameter.

The one idea: gradients are asked for by `torch.autograd.grad`, parameter by parameter. A re-entrant checkpoint computes
those of its own parameters in a backward of its own, which nobody asked for, so they come out as unused, and would
never be trained, without a word from torch. Such a graph is known by the name of one of its nodes.

    check_graph(loss)                                  # nothing, or a UserError: ... use_reentrant=False
    watch = EnergyMonitor(parameters=6); watch.check(loss, unused)

Limits: to walk through a graph takes a microsecond a node, so `EnergyMonitor` does it only where there is reason to.
A function of the user's own that calls backward() inside is not known by name.
"""

from typing import final

import numpy as np
from torch import Tensor

from unisono.errors import UserError
from unisono.models.torch.torch_errors import is_reentrant_checkpoint

_REENTRANT = "CheckpointFunctionBackward"
"""As the node of torch's checkpoint is called, and those of libraries that have one of their own."""


def check_graph(end: Tensor) -> None:
    """A `UserError` if what was computed went through a re-entrant checkpoint."""
    seen = {end.grad_fn}
    left = [end.grad_fn]
    while left:
        node = left.pop()
        if node is None:
            continue
        if node.name() == _REENTRANT:
            raise _refusal()
        new = {before for before, _ in node.next_functions} - seen
        seen |= new
        left.extend(new)


def explained(error: RuntimeError) -> Exception:
    """What torch says when it finds such a checkpoint on its way, in our words; else the error as it is."""
    return _refusal() if is_reentrant_checkpoint(error) else error


def _refusal() -> UserError:
    return UserError(
        "a re-entrant checkpoint (torch.utils.checkpoint with use_reentrant=True): the parameters inside it would get "
        "no gradient",
        hint="give checkpoint(..., use_reentrant=False)",
    )


@final
class Watch:
    """Looks at a graph if it is the first one, or if a parameter is unused that never was before."""

    def __init__(self, parameters: int) -> None:
        self._known = np.zeros(parameters, np.bool_)
        self._begun = False

    def check(self, loss: Tensor, unused: np.ndarray) -> None:
        """After its gradients were computed; unused (parameters,): those that have none."""
        if self._begun and not (unused & ~self._known).any():
            return
        check_graph(loss)
        if unused.all():
            raise UserError(
                "the loss of a shard depends on no parameter that is trained",
                hint="compute it with the shared model, without detach() and outside torch.no_grad()",
            )
        self._begun = True
        self._known |= unused
