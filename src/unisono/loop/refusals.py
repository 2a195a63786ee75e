"""Gradients that cannot be had: what stands in `p.grad` while ranks share a model.

The one idea: a step's gradient exists only in the arena, chunk by chunk, so whoever asks for all of it (a clipping
function, a gradient scaler, loss.backward(), an optimizer that is not shared, own code) must be told, and not be given
something that looks like a gradient. torch asks the tensor about every operation, those of its C++ engine included.

    parameter.grad = NoGradient.like(parameter)           # any use of it is a UserError that says what to do instead

Limits: what replaces `p.grad` (model.zero_grad()) is not seen; it is put back after every shard.
"""

from collections.abc import Iterable, Mapping
from typing import Any, final

import torch

from unisono.errors import UserError

_CLIP = "give the norm to world.share: world.share(model, optimizer, clip=1.0)"
_INSTEAD = {
    "linalg_vector_norm": ("clip_grad_norm_, or a norm,", _CLIP),
    "_foreach_norm": ("clip_grad_norm_, or a norm,", _CLIP),
    "clamp_": ("clip_grad_value_", _CLIP),
    "_amp_foreach_non_finite_check_and_unscale_": (
        "GradScaler",
        "leave the scaler out: use torch.autocast with torch.bfloat16, whose range is that of float32",
    ),
    "_to_copy": ("model.to(...), half() or double()", "do it before world.share; torch.autocast computes in 16 bits"),
    "zero_": ("zero_grad(set_to_none=False)", "leave it out: every batch writes all gradients anew"),
}
_OPTIMIZERS = ("add", "add_", "lerp_", "_foreach_add", "_foreach_add_", "_foreach_lerp_", "_fused_sgd_", "_fused_adam_",
               "_fused_adamw_")  # fmt: skip
"""What torch's optimizers do first with a gradient."""
_OTHERS = "the sum over ranks exists in parts only; batch.loss is global, and torch.autograd.grad gives a rank's own"


@final
class NoGradient(torch.Tensor):
    """As large as a parameter, without memory and without values."""

    @staticmethod
    def like(parameter: torch.Tensor) -> "NoGradient":
        nothing = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
        return torch.Tensor._make_subclass(NoGradient, nothing)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "NoGradient()"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__
        if name == "add_" and isinstance(args[0], NoGradient):
            raise UserError(
                "loss.backward() was called: what it computes stays with this rank, the others would not see it",
                hint="call world.backward(loss) instead",
            )
        if name in _OPTIMIZERS:
            raise UserError(
                "an optimizer that is not shared was stepped",
                hint="step the one that was given back: model, optimizer = world.share(model, optimizer)",
            )
        what, hint = _INSTEAD.get(name, (name, _OTHERS))
        raise UserError(f"{what} asked for a gradient: ranks that share a model have none of their own", hint=hint)
