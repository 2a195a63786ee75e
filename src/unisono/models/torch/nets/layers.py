"""Layers that the torch networks share: activations by name, and a batch norm that accepts one sample.

    ACTIVATIONS["gelu"](); BatchNorm1d(32)(x)      # x: (b, 32)

The one idea: the same names and conventions as in the NumPy engine (`models/activations.py`, `models/batchnorm.py`).
torch refuses to normalise a batch of one sample, but the ragged end of an epoch can leave such a shard, and a run must
not end there: the sample is normalised to zero and leaves the running variance as it is.

Limits: networks for images do not need this batch norm, because each channel has many pixels.
"""

from typing import final

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


@final
class BatchNorm1d(nn.BatchNorm1d):
    """torch's, but for the one sample."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or len(input) > 1 or self.running_mean is None or self.momentum is None:
            return super().forward(input)  # (b, h)
        with torch.no_grad():
            self.running_mean.lerp_(input[0].to(self.running_mean.dtype), self.momentum)  # (h,), of 16 bits in autocast
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        # Zero, but one that NaNs show through and that leads back to every parameter.
        return self.weight * (input - input) + self.bias  # (1, h)
