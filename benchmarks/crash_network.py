"""A network of everything that needs care when a rank dies, for `crash_points.py`.

    unisono train --model benchmarks/crash_network.py:make --data synthetic:classes=4,rows=68,features=13

The one idea: one small module has tied parameters, frozen ones, one that is never used and one that only some shards
use, buffers that count in int64 and add up in float64, batch norm's averages, and dropout.
"""

import torch
from torch import nn

CLASSES, WIDTH = 4, 37


class Odd(nn.Module):
    """Rows of features -> scores of 4 classes; 3,600 parameters: a block of 1024 for each of three ranks."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.enter = nn.Linear(features, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.again = nn.Linear(WIDTH, WIDTH)
        self.again.weight = self.middle.weight  # tied
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(7))
        self.seldom = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.2)
        self.leave = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
            self.total += 0.1
        h = torch.relu(self.norm(self.enter(x)))  # (n, 37)
        h = torch.relu(self.again(self.drop(torch.relu(self.middle(h)))) + self.frozen(h))
        if float(x[0, 0].detach()) > 0.5:
            h = h + self.seldom(h)
        return self.leave(h)


def make(shape: tuple[int, ...]) -> nn.Module:
    """For samples of this shape."""
    return Odd(*shape)
