"""ParameterGuard: whether the shared parameters are still as they were shared; NoGradient: the placeholder in `p.grad`.

The one idea: ranks share one copy at one address, so code that writes to a parameter, moves it, replaces it, freezes or
thaws it after `world.share` would train a different model from the other ranks. torch counts writes; addresses are
compared.

    guard = ParameterGuard(model); guard.check()  # nothing, or a UserError: parameter 'head.weight' was written ...

The update itself is counted as a write, too (`settle`): torch then refuses a graph that was made before it.

A step's gradient exists only in the arena, chunk by chunk. Code that asks for all of it (a clipping function, a
gradient scaler, loss.backward(), an optimizer that is not shared, own code) must get an error, not something that looks
like a gradient. So `p.grad` is a `NoGradient`: torch asks this tensor about every operation, those of its C++ engine
included, and any use of it is a `UserError` that says what to do instead.

Limits: writes through `p.data` and through NumPy are not counted by torch, and not seen. A parameter that takes the
place of another is seen when the next pass over the data begins. Code that replaces `p.grad` (model.zero_grad()) is not
seen; the placeholder is put back after every shard.
"""

import traceback
from collections.abc import Iterable, Mapping
from typing import Any, final

import torch
from torch import nn
from torch.autograd.graph import increment_version

from unisono.errors import UserError
from unisono.loop.shared_optimizer import AFTER_STEP

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


_WRITTEN = {
    True: "load and initialise parameters before world.share; between steps leave them alone",
    False: "keep averages and target networks in a module of their own, outside the shared one: code after "
    "optimizer.step() runs on every rank, so all of them change theirs alike",
}
"""The hint, by whether the parameter is trained."""


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
        """Before gradients are computed, and before the update: a `UserError` if code has put one into `p.grad`."""
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
