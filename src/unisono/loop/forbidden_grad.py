"""Gradients that cannot be had: what stands in `p.grad` while ranks share a model.

The one idea: a step's gradient exists only in the arena, chunk by chunk, so whoever asks for all of it (a clipping
function, a gradient scaler, loss.backward(), an optimizer that is not shared, own code) must be told, and not be given
something that looks like a gradient. torch asks the tensor about every operation, those of its C++ engine included.

    parameter.grad = NoGradient.like(parameter)           # any use of it is a UserError that says what to do instead

Limits: what replaces `p.grad` (model.zero_grad()) is not seen; it is put back after every shard.
"""

import traceback
from collections.abc import Iterable, Mapping
from typing import Any, final

import torch

from unisono.errors import UserError

_CLIP = "give the norm to world.share: world.share(model, optimizer, clip=1.0)"
_CHANGES = ("mul_", "div_", "add_", "sub_", "copy_", "fill_", "clamp_")
_CHANGE = (
    "leave out an average over ranks: optimizer.step() sums and averages. To scale gradients scale the loss: "
    "world.backward(0.5 * loss)"
)
_INSTEAD = {
    "_amp_foreach_non_finite_check_and_unscale_": (
        "GradScaler",
        "leave the scaler out: use torch.autocast with torch.bfloat16, whose range is that of float32",
    ),
    "_to_copy": ("model.to(...), half() or double()", "do it before world.share; torch.autocast computes in 16 bits"),
    "zero_": ("zero_grad(set_to_none=False)", "leave it out: every batch writes all gradients anew"),
}
_OTHERS = (
    "the sum over ranks exists in parts only, inside optimizer.step(). To look at gradients take a shard's own, before "
    "world.backward(loss): torch.autograd.grad(loss, parameters, retain_graph=True)"
)


@final
class NoGradient(torch.Tensor):
    """As large as a parameter, without memory and without values."""

    @staticmethod
    def like(parameter: torch.Tensor) -> "NoGradient":
        nothing = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
        return torch.Tensor._make_subclass(NoGradient, nothing)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "NoGradient(the sum over ranks exists inside optimizer.step() alone)"

    def numpy(self, *, force: bool = False) -> Any:
        raise _refusal("numpy")

    def tolist(self) -> Any:
        raise _refusal("tolist")

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        raise _refusal(func.overloadpacket.__name__)


def _refusal(name: str) -> UserError:
    what, hint = _INSTEAD.get(name) or _of_callers(name)
    return UserError(f"{what} asked for a gradient: ranks that share a model have none of their own", hint=hint)


def _of_callers(name: str) -> tuple[str, str]:
    """Who asked for a gradient to do `name` with it, and the hint; what is no question is raised here."""
    if clipping := _called_by("torch/nn/utils/clip_grad.py", "clip_grad"):
        return clipping, _CLIP
    if name == "add_" and _called_by("torch/autograd/"):
        raise UserError(
            "loss.backward() was called: what it computes stays with this rank, the others would not see it",
            hint="call world.backward(loss) instead",
        )
    if _called_by("torch/optim/"):
        raise UserError(
            "an optimizer that is not shared was stepped",
            hint="step the one that was given back: model, optimizer = world.share(model, optimizer)",
        )
    return ("a change of p.grad", _CHANGE) if name in _CHANGES else (f"reading p.grad ({name})", _OTHERS)


def _called_by(file: str, function: str = "") -> str:
    """The function of such a file, with such a beginning, that is being called; empty if none is."""
    found = (frame.f_code for frame, _ in traceback.walk_stack(None))
    names = (code.co_name for code in found if file in code.co_filename)
    return next((name for name in names if name.startswith(function)), "")
