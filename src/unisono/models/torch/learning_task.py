"""Task: what a module is given and what it must put out; the loss between its output and the labels.

The one idea: a loss is a sum of terms, and a sample's loss is the mean of its terms, so every sample weighs the same
whether it has one label, a row of labels (tokens) or several targets.

    task = Task((28, 28), outputs=10); x = task.samples(rows)          # (b, 784) -> (b, 1, 28, 28)
    task.loss(module(x), labels) / task.terms                          # the losses of the samples, added

Limits: two losses, cross-entropy and mean squared error; float32 inside, also after an output of 16 bits.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from unisono.models.base import Shape


@final
@dataclass(frozen=True)
class Task:
    """`shape`: one sample; images of two axes get a channel axis before them."""

    shape: Shape
    outputs: int
    """Classes, or numbers to predict."""
    classifies: bool = True
    tokens: bool = False
    """Whether samples are whole numbers; they have a label each then: (b, T) in, (b, T, outputs) out."""

    @cached_property
    def input_shape(self) -> Shape:
        """One sample as the module sees it."""
        return (1, *self.shape) if len(self.shape) == 2 and not self.tokens else self.shape

    @cached_property
    def output_shape(self) -> Shape:
        """What the module makes of it."""
        return (*self.shape, self.outputs) if self.tokens else (self.outputs,)

    @cached_property
    def terms(self) -> int:
        """How many terms of `loss` a sample has; the sample's loss is their mean."""
        if self.classifies:
            return self.shape[0] if self.tokens else 1
        return self.outputs

    def samples(self, rows: Tensor) -> Tensor:
        """(..., features) -> (..., *input_shape), without a copy."""
        return rows.view(*rows.shape[:-1], *self.input_shape)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """The sum of all terms, a float32 scalar."""
        z = z.float()
        if not self.classifies:
            return F.mse_loss(z, y, reduction="sum")
        if self.tokens:
            return F.cross_entropy(z.flatten(0, -2), y.flatten(), reduction="sum")
        return F.cross_entropy(z, y, reduction="sum")

    def correct(self, z: Tensor, y: Tensor) -> float:
        """How many labels are the largest output, as samples."""
        if not self.classifies:
            return 0.0
        # By NumPy, which takes half the time for a small batch.
        right = np.count_nonzero(z.detach().float().numpy().argmax(-1) == y.numpy())
        return right / self.terms
