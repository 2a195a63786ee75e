"""What the tests of models share: every layer, loss and network once, and one call of each from plain arrays."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unisono.models.activations import GELU, ReLU, Sigmoid, Tanh
from unisono.models.base import Model
from unisono.models.batchnorm import BatchNorm
from unisono.models.layers import Dropout, Layer, Linear, Room
from unisono.models.nets import build

LAYERS: dict[str, Callable[[int], Layer]] = {
    "linear": lambda width: Linear(width, 2 * width - 1),
    "linear, one output": lambda width: Linear(width, 1),
    "batch norm": BatchNorm,
    "relu": lambda width: ReLU(),
    "tanh": lambda width: Tanh(),
    "sigmoid": lambda width: Sigmoid(),
    "gelu": lambda width: GELU(),
    "dropout": lambda width: Dropout(0.3),
}

FEATURES = 12
NETWORKS: dict[str, Callable[[], Model]] = {
    "linear": lambda: build("linear", FEATURES, 1),
    "linear, 3 outputs": lambda: build("linear", FEATURES, 3),
    "mlp": lambda: build("mlp:16,9", FEATURES, 5),
    "mlp, relu": lambda: build("mlp:33", FEATURES, 2, "relu"),
    "mlp, tanh": lambda: build("mlp:7,8,9", FEATURES, 3, "tanh"),
    "mlp, gelu, dropout": lambda: build("mlp:16,32", FEATURES, 10, "gelu", 0.25),
    "mlp, one unit": lambda: build("mlp:1", FEATURES, 2),
    "bn-mlp": lambda: build("bn-mlp", FEATURES, 20),
    "bn-mlp, two, dropout": lambda: build("bn-mlp:17,6", FEATURES, 4, "sigmoid", 0.5),
}


@dataclass
class Outcome:
    """Of one layer in one call."""

    y: np.ndarray
    dx: np.ndarray
    grads: np.ndarray
    new_buffers: np.ndarray
    inferred: np.ndarray


def layer_state(layer: Layer, dtype: type, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Parameters and buffers that no layer would start with; variances are positive."""
    rng = np.random.default_rng(seed)
    sizes = layer.layout.length, layer.buffers_layout.length
    return rng.normal(size=sizes[0]).astype(dtype), rng.uniform(0.5, 2, sizes[1]).astype(dtype)


def run_layer(
    layer: Layer, x: np.ndarray, dy: np.ndarray, state: tuple[np.ndarray, np.ndarray], first_shard: int = 0
) -> Outcome:
    """x is (k, b, width); shard j of this call is shard first_shard + j of the run."""
    params, buffers = state
    new_buffers = np.full((len(x), len(buffers)), np.nan, x.dtype)
    noise = [np.random.default_rng(first_shard + j) for j in range(len(x))]
    opened = layer.open(Room(x.shape, params, buffers, new_buffers, noise))
    grads = np.full((len(x), len(params)), np.nan, x.dtype)
    opened.bind_grads(grads)
    inferred = opened.infer(x).copy()
    y = opened.forward(x).copy()
    return Outcome(y, opened.backward(dy.copy()), grads, new_buffers, inferred)


@dataclass
class Called:
    """Copies of what `loss_and_grad` and `evaluate` gave."""

    grads: np.ndarray
    new_buffers: np.ndarray
    sums: np.ndarray
    evaluated: np.ndarray


def ready(model: Model, dtype: type = np.float32, seed: int = 1) -> Model:
    """The model with starting values, bound to vectors of `dtype`."""
    params, buffers = np.empty(model.layout.length, dtype), np.empty(model.buffers_layout.length, dtype)
    model.init(params, buffers, np.random.default_rng(seed))
    model.bind(params, buffers)
    return model


def samples(model: Model, shape: tuple[int, ...], seed: int = 2, dtype: type = np.float32) -> tuple[np.ndarray, ...]:
    """(x, y) that fit the model."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape).astype(dtype)
    outputs = model.layout.shapes[model.layout.names[-1]][0]
    if model.classifies:
        return x, rng.integers(0, outputs, shape[:2])
    return x, rng.normal(size=(*shape[:2], outputs)).astype(dtype)


def call(model: Model, x: np.ndarray, y: np.ndarray, first_shard: int = 0, scale: float = 0.125) -> Called:
    """One training call and one evaluation; shard j of this call is shard first_shard + j of the run."""
    grads = np.full((len(x), model.layout.length), np.nan, x.dtype)
    evaluated = model.evaluate(x, y)
    kept = np.stack([evaluated.loss_sum, evaluated.correct])
    sums = model.loss_and_grad(x, y, grads, scale, lambda j: np.random.default_rng(first_shard + j))
    return Called(grads, sums.new_buffers.copy(), np.stack([sums.loss_sum, sums.correct]), kept)
