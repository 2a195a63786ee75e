"""ModuleWrapper: the interface of a library that wraps a module and averages its gradients over ranks.

The one idea: three calls are all that differs between one such library and another. `ddp.py` is torch's,
`accelerate.py` is Accelerate's.

    wrapped.backward(loss(wrapped.forward(x), y)); wrapped.update(lr=0.01, clip=None)

What both share is here, too: torch's optimizer of a recipe, and what torch complains of in plain words.

Limits: optimizers are torch's own, as torch makes them by default; LARS is not among them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.torch.checks import is_single_sample_batchnorm, is_unused_parameter
from unisono.optim.options import OptimizerOptions


class ModuleWrapper(ABC):
    """A wrapped module with its optimizer."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """What the module makes of the samples."""

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Gradients, averaged over ranks."""

    @abstractmethod
    def update(self, lr: float, clip: float | None) -> None:
        """Changes the parameters; the gradients are gone afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the wrapped module."""


Wrap: TypeAlias = Callable[[nn.Module, bool], ModuleWrapper]
"""wrap(module, unused): whether there are parameters that the loss does not depend on."""


def torch_optimizer(options: OptimizerOptions, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """torch's optimizer of that name, with the same numbers as ours."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    decay = options.weight_decay or 0.0
    if options.name in ("adam", "adamw"):
        kind = torch.optim.Adam if options.name == "adam" else torch.optim.AdamW
        return kind(trained, lr=options.lr, betas=options.betas, eps=options.eps, weight_decay=decay)
    nesterov = options.name == "nesterov"
    return torch.optim.SGD(
        trained, lr=options.lr, momentum=options.momentum or 0.0, weight_decay=decay, nesterov=nesterov
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The learning rate of the next update."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def explained(error: Exception) -> Exception:
    """What torch complains of, in words that say how to mend it where the user can; else the error as it is."""
    if is_single_sample_batchnorm(error):
        return UserError(
            f"batch norm cannot train on one sample, which is all that a rank got: {error}",
            hint="leave out the ragged end with --drop-last, or use a larger --batch-size",
        )
    if is_unused_parameter(error):
        return UserError(
            "a parameter that the first batch used was not used by a later one, which torch's wrapper refuses",
            hint="use --strategy sync, which leaves such parameters as they are",
        )
    return error
