"""Where a module is trained, and what it does there: on the processor, in our vectors, or as a copy on a device.

The one idea: on the processor the module is the model's own, whose parameters are views of the flat vector, so saving
and hashing see every update. A device has memory of its own: there the module is a copy, and whoever evaluates the
model is led to it.

    module = placed(model, torch.device("cpu"), homes); habits = probe(module, lambda: loss(module(x), y))

Limits: a copy is made once, whole; what is evaluated goes to the device and back, a block at a time.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from unisono.models.torch.checks import check_graph
from unisono.models.torch.model import TorchModel
from unisono.models.torch.random_state import TORCH, Kinds, drawn_since, generator_states


@final
@dataclass(frozen=True)
class ModuleTraits:
    """What a module does with a batch."""

    draws: Kinds
    """The generators that it draws random numbers from, for dropout say."""
    unused: bool
    """Whether there are trained parameters that the loss does not depend on."""


def on_cpu(device: torch.device) -> bool:
    """Whether its memory is ours, so that a module there can be views of our vectors."""
    return device.type == "cpu"


def generator_of(device: torch.device) -> torch.Generator:
    """What modules on this device draw from; CUDA has been started there."""
    return torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]


@final
class DeviceCopy(nn.Module):
    """Stands for a module on another device: what goes in and what comes out is here; autocast here is one there."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.module = module
        self._device = device

    def forward(self, x: Tensor) -> Tensor:
        mixed, kind = torch.is_autocast_enabled("cpu"), self._device.type
        with torch.autocast(kind, torch.get_autocast_dtype("cpu")) if mixed else nullcontext():
            # Whoever trains the module there turns it to training without asking here.
            if self.module.training != self.training:
                self.module.train(self.training)
            z: Tensor = self.module(x.to(self._device))
        return z.cpu()


def placed(model: TorchModel, device: torch.device, values: Mapping[str, Tensor]) -> nn.Module:
    """The module to train, with these buffers: the model's own, or a copy on the device, which the model then uses."""
    module = model.module
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(values[name])
    if on_cpu(device):
        return module
    module = deepcopy(module).to(device)
    model.module = DeviceCopy(module, device)
    return module


def probe(module: nn.Module, loss: Callable[[], Tensor]) -> ModuleTraits:
    """Computes the gradients of `loss` once, and leaves parameters, gradients and buffers as they are."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    before = generator_states()
    module.train()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    value = loss()
    check_graph(value)
    found = torch.autograd.grad(value, trained, allow_unused=True)
    for name, buffer in module.named_buffers():
        buffer.copy_(buffers[name])
    # On a device its own generator draws, which cannot be watched as cheaply.
    draws = drawn_since(before) if on_cpu(trained[0].device) else drawn_since(before) | TORCH
    return ModuleTraits(draws, unused=any(gradient is None for gradient in found))
