"""Networks and data as users write them, for the recipes that `recipe_draws.py` draws: --model own_modules.py:frozen.

The one idea: each has one habit that a rank could get wrong: parameters that are unused, tied, frozen or used by some
samples only, buffers of every type, random numbers of three generators, layers whose bits depend on how data lie.

    unisono train --model benchmarks/own_modules.py:frozen --data synthetic:classes=3,rows=97,features=13

Limits: small sizes. State that is neither a parameter nor a buffer is refused by unisono, so nothing here has any.
"""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]


def _size(shape: Shape) -> int:
    return int(np.prod(shape))


class Frozen(nn.Module):
    """A frozen layer, a parameter that nothing uses, one that only some samples use."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(_size(shape), 11).requires_grad_(False)
        self.top = nn.Linear(11, outputs)
        self.idle = nn.Parameter(torch.randn(7))
        self.rare = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        z = self.top(torch.relu(self.base(x.flatten(1))))  # (b, outputs)
        return z + self.rare if float(x.flatten()[0]) > 0 else z


class Tied(nn.Module):
    """One layer under two names, passed twice; a constant table as a buffer."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(_size(shape), 13)
        self.middle = nn.Linear(13, 13)
        self.again = self.middle
        self.last = nn.Linear(13, outputs)
        self.register_buffer("table", torch.randn(13))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.first(x.flatten(1)) + self.table)  # (b, 13)
        return self.last(F.gelu(self.again(torch.tanh(self.middle(z)))))


class Counting(nn.Module):
    """Buffers that training changes: int64, float64, int16, a mean in a new tensor each time."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(_size(shape), outputs)
        self.register_buffer("odd", torch.zeros(3))
        self.register_buffer("mean", torch.zeros(_size(shape)))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("small", torch.zeros(5, dtype=torch.int16))
        self.register_buffer("wide", torch.zeros(2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.odd += 1.5
            self.calls += 1
            self.small += 1
            self.wide += 0.1
        return self.layer(x - self.mean)


class Coded(nn.Module):
    """Frozen parameters that are no float32; a buffer of odd length lies before them."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.codes = nn.Parameter(torch.randperm(_size(shape)), requires_grad=False)
        self.small = nn.Parameter(torch.tensor([1, -2, 3], dtype=torch.int8), requires_grad=False)
        self.wide = nn.Parameter(torch.rand(outputs, dtype=torch.float64), requires_grad=False)
        self.layer = nn.Linear(_size(shape), outputs)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += self.small
        return self.layer(x.flatten(1)[:, self.codes]) + self.wide.float()


class Noisy(nn.Module):
    """Draws from torch's, NumPy's and Python's generators; norms that need no batch."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(_size(shape), 15), nn.LayerNorm(15)
        self.bend, self.groups = nn.PReLU(15), nn.GroupNorm(3, 15)
        self.last = nn.Linear(15, outputs)

    def forward(self, x: Tensor) -> Tensor:
        z = self.groups(self.bend(self.norm(self.first(x.flatten(1)))))  # (b, 15)
        if self.training:
            z = F.dropout(z, 0.3) * float(np.random.uniform(0.9, 1.1)) + 0.01 * random.random()
        return self.last(z)


class Gated(nn.Module):
    """Products of two layers, a residual, a double-precision step in the middle."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.enter = nn.Linear(_size(shape), 19)
        self.gate, self.value = nn.Linear(19, 19, bias=False), nn.Linear(19, 19)
        self.mix, self.leave = nn.Bilinear(19, 19, 6), nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.enter(x.flatten(1)))  # (b, 19)
        z = z + torch.sigmoid(self.gate(z)) * self.value(z)
        z = z - z.double().mean(1, keepdim=True).to(z.dtype)
        return self.leave(self.mix(z, z))


def parametrized(shape: Shape, outputs: int) -> nn.Module:
    """Weights that are computed from others; the forward changes vectors of singular values."""
    normed, split = nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm
    return nn.Sequential(
        nn.Flatten(), normed(nn.Linear(_size(shape), 9)), nn.ReLU(), split(nn.Linear(9, outputs))
    )  # fmt: skip


def convolutional(shape: Shape, outputs: int) -> nn.Module:
    """Batch norm with a mean over all time, dropout of whole channels, strides that odd images do not divide."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Dropout2d(0.2),
        nn.Conv2d(6, 6, 3, stride=2, groups=3, padding=1), nn.BatchNorm2d(6, momentum=None, affine=False), nn.GELU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, outputs),
    )  # fmt: skip


class Upscaled(nn.Module):
    """Transposed and dilated convolutions, rows as a sequence, a maximum over places."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(shape[0], 3, 2, stride=2)
        self.wide = nn.Conv2d(3, 5, 3, dilation=2)
        self.along = nn.Conv1d(5, 7, 3, padding=1, bias=False)
        self.last = nn.Linear(7, outputs)

    def forward(self, x: Tensor) -> Tensor:
        z = F.silu(self.wide(F.silu(self.up(x))))  # (b, 5, h, w)
        return self.last(self.along(z.flatten(2)).amax(2))


class Recurrent(nn.Module):
    """Keeps lists of its own parameters, and draws inside."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(outputs, 7, padding_idx=0)
        self.layers = nn.LSTM(7, 6, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(x))[0])  # (b, T, outputs)


class TiedText(nn.Module):
    """Embedding and head are one parameter; a GRU, and positions in a buffer that is not saved."""

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(outputs, 9)
        self.layers = nn.GRU(9, 9, batch_first=True)
        self.head = nn.Linear(9, outputs, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("places", torch.linspace(-1, 1, shape[0])[:, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        z = self.layers(self.embed(x) + self.places[: x.shape[1]])[0]  # (b, T, 9)
        return self.head(F.dropout(z, 0.1, self.training))


def offset_rows() -> dict[str, np.ndarray]:
    """Samples whose memory begins 4 bytes after a border, as a slice of a user's larger array may."""
    rng = np.random.default_rng(5)
    flat = rng.standard_normal(1 + 83 * 13).astype(np.float32)
    x, y = flat[1:].reshape(83, 13), np.arange(83) % 4
    return {"train_x": x[:70], "train_y": y[:70], "test_x": x[70:], "test_y": y[70:]}


def wide_rows() -> dict[str, np.ndarray]:
    """float64, every second column of a larger array, three numbers to predict."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((91, 22))[:, ::2]
    y = x[:, :3] - x[:, 3:6] + 0.1 * rng.standard_normal((91, 3))
    return {"train_x": x[:77], "train_y": y[:77], "test_x": x[77:], "test_y": y[77:]}
