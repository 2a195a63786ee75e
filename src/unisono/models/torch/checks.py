"""Which modules the engine takes: float32 parameters in this machine's memory, each in a place of its own.

The one idea: what cannot be a stretch of a flat vector of float32 is refused by name, before any process starts. What
is never trained, buffers and frozen parameters, may be of any type that NumPy has: it is kept bit by bit.

    check(module)                                  # nothing, or a UserError: parameter 'head.weight' is of type float64

Limits: a tensor that the module keeps as a plain attribute is neither shared, nor saved, nor summed; the trial refuses
one that calls change.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from unisono.errors import UserError


def check(module: nn.Module) -> None:
    """A `UserError` that names the first tensor that cannot be trained or kept."""
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
    _check_places(module)
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


def _check_places(module: nn.Module) -> None:
    """Parameters that share memory would be trained apart from each other; one under two names is fine. A buffer that
    is a part of one would not be trained with it."""
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
