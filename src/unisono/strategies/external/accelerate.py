"""accelerate: module and optimizer prepared by Hugging Face Accelerate's `Accelerator`, used as its guide uses it.

The one idea: nothing is tuned, neither up nor down; people compare with what they have. Accelerate finds the process
group that is already there and wraps the module with torch's DDP.

    unisono train --strategy accelerate --ranks 2                     # or under torchrun, or accelerate launch

Limits: its mixed precision is its own: fp16 needs a GPU (on processors it changes nothing, without a word, so it is
refused before). `Accelerator` keeps its state in a singleton and writes to the environment: one run a process.
"""

from typing import Any, final

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs  # type: ignore[import-untyped]
from torch import Tensor, nn

from unisono.optim.options import OptimizerOptions
from unisono.strategies.external.module_wrapper import ModuleWrapper, set_lr, torch_optimizer


@final
class Accelerate(ModuleWrapper):
    """`unused`: whether there are parameters that the loss does not depend on."""

    def __init__(
        self, module: nn.Module, options: OptimizerOptions, device: torch.device, precision: str, *, unused: bool
    ) -> None:
        self._accelerator = Accelerator(
            device_placement=False,  # it would move the module from "cpu" to "cpu:0", out of our vectors
            cpu=device.type == "cpu",
            mixed_precision="no" if precision == "fp32" else precision,
            kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)] if unused else None,
        )
        optimizer = torch_optimizer(options, module.parameters())
        prepared: tuple[Any, Any] = self._accelerator.prepare(module, optimizer)
        self._module, self._optimizer = prepared

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self._module(x)
        return z

    def backward(self, loss: Tensor) -> None:
        self._accelerator.backward(loss)

    def update(self, lr: float, clip: float | None) -> None:
        set_lr(self._optimizer, lr)
        if clip is not None:
            self._accelerator.clip_grad_norm_(self._module.parameters(), clip)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def close(self) -> None:
        del self._module, self._optimizer
        self._accelerator.free_memory()
