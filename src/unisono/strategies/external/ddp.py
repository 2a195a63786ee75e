"""Ddp: a module in torch's `DistributedDataParallel`, used as torch's tutorials use it.

The one idea: nothing is tuned, neither up nor down, because people compare with what they have. Mixed precision is
`torch.autocast` around the forward; fp16 has a `GradScaler`, which leaves out a step whose gradients overflowed.
`find_unused_parameters`, which costs time, is set where the first batch shows that it is needed.

    unisono train --strategy ddp --ranks 2            # or: torchrun --nproc-per-node 2 -m unisono train --strategy ddp

Limits: optimizers are torch's own, see `module_wrapper.py`. Needs torch 2.3 or later (a gradient scaler for
processors).
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from unisono.optim.options import OptimizerOptions
from unisono.strategies.external.module_wrapper import ModuleWrapper, set_lr, torch_optimizer

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@final
class Ddp(ModuleWrapper):
    """`unused`: whether there are parameters that the loss does not depend on."""

    def __init__(
        self, module: nn.Module, options: OptimizerOptions, device: torch.device, precision: str, *, unused: bool
    ) -> None:
        ids = None if device.type == "cpu" else [device]
        self._module = DistributedDataParallel(module, device_ids=ids, find_unused_parameters=unused)
        self._optimizer = torch_optimizer(options, module.parameters())
        self._kind, self._dtype, self._mixed = device.type, TYPES[precision], precision != "fp32"
        self._scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self._kind, self._dtype, enabled=self._mixed):
            z: Tensor = self._module(x)
        return z

    def backward(self, loss: Tensor) -> None:
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def update(self, lr: float, clip: float | None) -> None:
        set_lr(self._optimizer, lr)
        if clip is not None:
            self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self._module.parameters(), clip)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad()

    def close(self) -> None:
        del self._module
