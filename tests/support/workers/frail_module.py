"""A user's module that fails on the second machine after a while: raises an exception, or ends whoever computes it."""

import math
import os
import socket
from pathlib import Path

import torch

HOW = os.environ.get("FRAIL", "raises")
SECOND = ("node1", "n2")
LAST = int(os.environ.get("LOCAL_RANK", "0")) + 1 == int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
"""Of the ranks that a launcher started on a machine: not its exchanger, if there are several."""
CALLS = 60
"""Of a rank, in epochs of 23 steps with a few shards each."""


called = 0
"""A global: the module itself may keep no state."""


class Frail(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global called  # noqa: PLW0603
        called += self.training
        if socket.gethostname() in SECOND and LAST:
            if HOW == "raises" and called > CALLS:
                raise ValueError("this batch has no label")
            # Whoever replaces the rank comes to the same batch, though its calls are counted anew.
            if HOW == "exits" and (called > CALLS or Path("exited").exists()):
                Path("exited").touch()
                os._exit(3)
        return super().forward(x.flatten(1))


def make(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    return Frail(math.prod(shape), outputs)
