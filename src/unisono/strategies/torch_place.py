"""Where a module is trained, and what it does there: on the processor, in our vectors, or as a copy on a device.

The one idea: on the processor the module is the model's own, whose parameters are views of the flat vector, so saving
and hashing see every update. A device has memory of its own: there the module is a copy, and whoever evaluates the
model is led to it.

    module = placed(model, torch.device("cpu"), homes); habits = probe(module, lambda: loss(module(x), y))
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from unisono.models.torch.model import TorchModel


@final
@dataclass(frozen=True)
class Habits:
    """What a module does with a batch."""

    draws: bool
    """Whether it draws random numbers, for dropout say."""
    unused: bool
    """Whether there are trained parameters that the loss does not depend on."""


@final
class Elsewhere(nn.Module):
    """Stands for a module on another device: what goes in and what comes out is here."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.module = module
        self._device = device

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.module(x.to(self._device))
        return z.cpu()


def placed(model: TorchModel, device: torch.device, values: Mapping[str, Tensor]) -> nn.Module:
    """The module to train, with these buffers: the model's own, or a copy on the device, which the model then uses."""
    module = model.module
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(values[name])
    if device.type == "cpu":
        return module
    module = deepcopy(module).to(device)
    model.module = Elsewhere(module, device)
    return module


def probe(module: nn.Module, loss: Callable[[], Tensor]) -> Habits:
    """Computes the gradients of `loss` once, and leaves parameters, gradients and buffers as they are."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    drawn = torch.default_generator.get_state()
    module.train()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(loss(), trained, allow_unused=True)
    for name, buffer in module.named_buffers():
        buffer.copy_(buffers[name])
    # On a device its own generator draws, which cannot be watched as cheaply.
    draws = trained[0].device.type != "cpu" or not torch.equal(drawn, torch.default_generator.get_state())
    return Habits(draws, unused=any(gradient is None for gradient in found))
