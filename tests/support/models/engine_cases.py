"""Small modules of every kind that the engine must bear, and what tests do with a model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unisono.models.base import ShardSums
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel
from unisono.rng import generator

# Tests of other folders fork this process: no threads of torch's in it.
torch.set_num_threads(1)

FEATURES, CLASSES, VOCABULARY, PLACES = 20, 5, 11, 6


def noisy() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES)
    )


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout2d(0.2),
        nn.Flatten(), nn.Linear(4 * 4 * 4, CLASSES),
    )  # fmt: skip


class Tied(nn.Module):
    """Embedding and head are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("places", torch.randn(PLACES, 8) * 0.1)
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(torch.tanh(self.mix(self.embed(x) + self.places)), 0.1, self.training))


class Frozen(nn.Module):
    """A frozen layer, a parameter that nobody uses, one that only some samples use."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(FEATURES, 12).requires_grad_(False)
        self.top = nn.Linear(12, CLASSES)
        self.idle = nn.Parameter(torch.randn(7))
        self.rare = nn.Parameter(torch.randn(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        z = self.top(torch.relu(self.base(x)))
        return z + self.rare if float(x[0, 0]) > 0 else z


class Reassigning(nn.Module):
    """Puts a new tensor in the place of its buffer, and counts in a type of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("odd", torch.zeros(3))
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("calls", torch.zeros(3, dtype=torch.int16))
        self.register_buffer("wide", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.odd += 1.5
            self.calls += 1
            self.wide += 0.1
        return self.layer(x - self.mean)


class Coded(nn.Module):
    """Frozen parameters that are no float32: kept bit by bit. A buffer of odd length lies before them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.codes = nn.Parameter(torch.randperm(FEATURES), requires_grad=False)
        self.small = nn.Parameter(torch.tensor([1, -2, 3], dtype=torch.int8), requires_grad=False)
        self.wide = nn.Parameter(torch.rand(CLASSES, dtype=torch.float64), requires_grad=False)
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += self.small
        return self.layer(x[:, self.codes]) + self.wide.float()


class Recurrent(nn.Module):
    """Keeps lists of its own parameters, and draws inside."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.layers = nn.LSTM(8, 6, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(6, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(x))[0])


def parametrized() -> nn.Module:
    """Weights that are computed from others; the forward changes vectors of singular values."""
    normed, split = nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm
    return nn.Sequential(normed(nn.Linear(FEATURES, 8)), nn.ReLU(), split(nn.Linear(8, CLASSES)))


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, 3))


ROWS, TEXT = Task((FEATURES,), CLASSES), Task((PLACES,), VOCABULARY, tokens=True)
CASES: dict[str, tuple[Callable[[], nn.Module], Task]] = {
    "noisy": (noisy, ROWS),
    "convolutional": (convolutional, Task((8, 8), CLASSES)),
    "tied": (Tied, TEXT),
    "frozen": (Frozen, ROWS),
    "reassigning": (Reassigning, ROWS),
    "coded": (Coded, ROWS),
    "recurrent": (Recurrent, TEXT),
    "parametrized": (parametrized, ROWS),
    "regression": (regression, Task((FEATURES,), 3, classifies=False)),
}


def ready(case: str, precision: str = "fp32") -> tuple[TorchModel, np.ndarray, np.ndarray]:
    return bound(*CASES[case], precision=precision)


def bound(make: Callable[[], nn.Module], task: Task, **options: Any) -> tuple[TorchModel, np.ndarray, np.ndarray]:
    """A model that is bound to vectors with starting values; the vectors."""
    model = TorchModel(make, task, **options)
    params = np.full(model.layout.length, np.nan, np.float32)
    buffers = np.full(model.buffers_layout.length, np.nan, np.float32)
    model.init(params, buffers, generator(3, "init"))
    model.bind(params, buffers)
    return model, params, buffers


def samples(task: Task, shards: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(shards * 100 + batch)
    if task.tokens:
        return tuple(rng.integers(0, VOCABULARY, (2, shards, batch, PLACES)))
    x = rng.standard_normal((shards, batch, int(np.prod(task.shape)))).astype(np.float32)
    if task.classifies:
        return x, rng.integers(0, CLASSES, (shards, batch))
    return x, rng.standard_normal((shards, batch, task.outputs)).astype(np.float32)


def noise(first: int = 0) -> Callable[[int], np.random.Generator]:
    return lambda shard: generator(1, "dropout", 0, 0, first + shard)


def call(model: TorchModel, x: np.ndarray, y: np.ndarray, first: int = 0) -> tuple[np.ndarray, ShardSums]:
    """(gradients, sums) of the shards; the gradients' rows start as garbage."""
    grads = np.full((len(x), model.layout.length + 5), np.nan, np.float32)
    sums = model.loss_and_grad(x, y, grads, 1 / 37, noise(first))
    return grads[:, : model.layout.length], sums
