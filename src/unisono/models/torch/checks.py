"""Checks of modules and of autograd graphs: what the engine cannot train is refused by name.

The one idea: each trained parameter must be a separate stretch of a flat float32 vector on the CPU, and must get its
gradient from `torch.autograd.grad`. Buffers and frozen parameters may have any type that NumPy has: they are kept bit
by bit. A re-entrant checkpoint runs a backward of its own, so the parameters inside it would look unused and would
never be trained, and torch does not report that. Such a graph is recognised by the name of one of its nodes.

    check(module)                                  # nothing, or a UserError: parameter 'head.weight' is of type float64
    check_graph(loss)                              # nothing, or a UserError: ... use_reentrant=False
    graph_check = GraphCheck(parameters=6); graph_check.check(loss, unused)

torch raises some of these errors as text only. The functions `is_...` are the one place that reads it; they match the
wording of the versions that pyproject.toml allows. `comm/gloo/errors.py` does the same for gloo.

>>> is_single_sample_batchnorm(ValueError("Expected more than 1 value per channel when training"))
True

Limits: a tensor in a plain attribute is neither shared, nor saved, nor summed; `dry_run.py` refuses one that calls
change. Traversing a graph takes a microsecond a node, so `GraphCheck` does it only with a reason. A user's function
that calls backward() inside is not recognised.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from unisono.errors import UserError


def check(module: nn.Module) -> None:
    """Raises a `UserError` that names the first tensor that cannot be trained or kept."""
    for kind, name, tensor in _tensors(module):
        what = f"{kind} {name!r} of {type(module).__name__}"
        if is_lazy(tensor):
            raise UserError(
                f"{what} has no shape yet: the module is lazy", hint="give its sizes, or call it once in the factory"
            )
        if tensor.device.type != "cpu":
            raise UserError(f"{what} is on device {tensor.device}", hint="build it on the cpu: module.to('cpu')")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise UserError(f"{what} is not a plain dense tensor", hint="use one: tensor.to_dense(), or dequantize()")
        if tensor.requires_grad and tensor.dtype != torch.float32:
            raise UserError(
                f"{what} is of type {_short(tensor.dtype)}; trained parameters are float32",
                hint="call module.float(); --precision and torch.autocast say in which type products are computed",
            )
        if _numpy_lacks(tensor.dtype):
            raise UserError(f"{what} is of type {_short(tensor.dtype)}", hint=f"keep it as float32: {kind}.float()")
    _check_memory(module)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise UserError(f"{type(module).__name__} has no parameter to train", hint="is requires_grad off everywhere?")
    if any(key.endswith("_extra_state") for key in module.state_dict()):
        raise UserError(
            f"{type(module).__name__} has extra state (get_extra_state), which no weights file holds",
            hint="keep it in buffers: register_buffer",
        )


def _tensors(module: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    yield from (("parameter", name, tensor) for name, tensor in module.named_parameters())
    yield from (("buffer", name, tensor) for name, tensor in module.named_buffers())


def _check_memory(module: nn.Module) -> None:
    """Parameters that share memory would be trained separately; one under two names is fine. A buffer that is a view of
    a parameter would not follow it."""
    places = sorted((p.data_ptr(), p.data_ptr() + p.nbytes, name) for name, p in module.named_parameters() if p.nbytes)
    for (_, end, name), (start, _, other) in pairwise(places):
        if start < end:
            raise UserError(
                f"parameters {name!r} and {other!r} of {type(module).__name__} share memory",
                hint="tie weights by one parameter under two names: self.b.weight = self.a.weight",
            )
    storages = {p.untyped_storage().data_ptr(): name for name, p in module.named_parameters() if p.nbytes}
    for name, buffer in module.named_buffers():
        owner = storages.get(buffer.untyped_storage().data_ptr())
        if owner is not None and buffer.nbytes:
            raise UserError(
                f"buffer {name!r} of {type(module).__name__} is a view of parameter {owner!r}, and would not follow it",
                hint="compute it from the parameter where it is needed, or make it a copy: .clone()",
            )


def _numpy_lacks(dtype: torch.dtype) -> bool:
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return True
    return False


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def is_single_sample_batchnorm(error: BaseException) -> bool:
    """Whether batch norm was to train on one sample."""
    return "more than 1 value per channel" in str(error)


def is_unused_parameter(error: BaseException) -> bool:
    """Whether torch's DDP found a parameter without a gradient that had one in the first batch."""
    return "Expected to have finished reduction" in str(error)


def is_reentrant_checkpoint(error: BaseException) -> bool:
    """Whether a gradient was asked for that goes through a re-entrant checkpoint."""
    return "use_reentrant" in str(error)


_REENTRANT = "CheckpointFunctionBackward"
"""The name of the node of torch's checkpoint, and of those of other libraries."""


def check_graph(end: Tensor) -> None:
    """Raises a `UserError` if the graph contains a re-entrant checkpoint."""
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
    """Our error for torch's error about such a checkpoint; any other error unchanged."""
    return _refusal() if is_reentrant_checkpoint(error) else error


def _refusal() -> UserError:
    return UserError(
        "a re-entrant checkpoint (torch.utils.checkpoint with use_reentrant=True): the parameters inside it would get "
        "no gradient",
        hint="give checkpoint(..., use_reentrant=False)",
    )


@final
class GraphCheck:
    """Checks a graph if it is the first one, or if a parameter is unused for the first time."""

    def __init__(self, parameters: int) -> None:
        self._known = np.zeros(parameters, np.bool_)
        self._begun = False

    def check(self, loss: Tensor, unused: np.ndarray) -> None:
        """Called when the gradients are computed. unused (parameters,): those without a gradient."""
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
