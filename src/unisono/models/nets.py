"""Networks by name: `linear`, `mlp:128,64`, `bn-mlp:32`; the sizes after the colon are those of the hidden layers.

The one idea: a network is a list of layers and a loss, in the order in which they compute; `Chain` runs it.

    model = build("mlp:128,64", features=784, outputs=10, activation="relu", dropout=0.25)

Layers are numbered as in torch's `nn.Sequential`: `0.W`, `0.b`, `1.gamma`, `1.running_mean`; the only layer of `linear`
has no number: `W`, `b`. Starting values are torch's, uniform in +-1/sqrt(inputs), wider for weights before an
activation (`GAINS`); with batch norm, which undoes the width, exactly torch's. They depend on the random generator
alone.

`torch_state` gives the arrays of such a network torch's names and shapes, as `load_state_dict` of the same network
takes them. The end of a name says what the array is: W is torch's weight transposed, b and beta are biases, gamma is
batch norm's weight; running statistics have the same names. `linear` loads into an `nn.Linear`.

    state = torch_state(model.layout.views(params) | model.buffers_layout.views(buffers))
    net = nn.Sequential(nn.Linear(784, 128), nn.Sigmoid(), ...)
    net.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})

Limits: imports no torch; `torch_state` returns NumPy arrays, copies or the given ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.errors import UserError, unknown_name
from unisono.models.activations import ACTIVATIONS, GAINS, OWN_ACTIVATIONS
from unisono.models.base import Array, Model
from unisono.models.batchnorm import BatchNorm
from unisono.models.chain import Chain
from unisono.models.layers import Dropout, Layer, Linear
from unisono.models.losses import MeanSquaredError, SoftmaxCrossEntropy


@final
@dataclass(frozen=True)
class Sizes:
    """What `build` was asked for, checked."""

    features: int
    hidden: tuple[int, ...]
    outputs: int
    activation: str
    dropout: float


@final
@dataclass(frozen=True)
class Network:
    """A named network: how it is made, and its defaults."""

    make: Callable[[Sizes], Model]
    hidden: tuple[int, ...]


def linear(sizes: Sizes) -> Model:
    """Linear regression with squared error: outputs = x W + b."""
    layer = Linear(sizes.features, sizes.outputs, first=True)
    return Chain({"": layer}, MeanSquaredError(), features=sizes.features)


def mlp(sizes: Sizes) -> Model:
    """Linear and activation for each hidden size, then linear to the classes, softmax."""
    return _classifier(sizes, normed=False)


def bn_mlp(sizes: Sizes) -> Model:
    """The same with batch norm between linear and activation."""
    return _classifier(sizes, normed=True)


NETWORKS: dict[str, Network] = {
    "linear": Network(linear, ()),
    "mlp": Network(mlp, (128, 64)),
    "bn-mlp": Network(bn_mlp, (32,)),
}


def build(spec: str, features: int, outputs: int, activation: str = "", dropout: float = 0.0) -> Model:
    """The network that `spec` names; no `activation`: its own (`OWN_ACTIVATIONS`). Mistakes are `UserError`s."""
    name, colon, sizes = spec.partition(":")
    if name not in NETWORKS:
        raise unknown_name("model", name, NETWORKS)
    network = NETWORKS[name]
    hidden = _hidden(spec, sizes) if colon else network.hidden
    if not network.hidden and (hidden or activation or dropout):
        raise UserError(
            f"model {spec!r} with sizes, activation or dropout: {name} has no hidden layer",
            hint="use --model mlp for one with hidden layers",
        )
    if activation and activation not in ACTIVATIONS:
        raise unknown_name("activation", activation, ACTIVATIONS)
    if not 0 <= dropout < 1:
        raise UserError(f"dropout is {dropout}", hint="give a probability of 0 or more and below 1")
    if features < 1 or outputs < (2 if network.hidden else 1):
        raise UserError(
            f"model {spec!r} for {features} features and {outputs} outputs", hint="a classifier needs 2 classes or more"
        )
    return network.make(Sizes(features, hidden, outputs, activation or OWN_ACTIVATIONS.get(name, ""), dropout))


def _hidden(spec: str, sizes: str) -> tuple[int, ...]:
    fields = sizes.split(",")
    if not all(field.isascii() and field.isdecimal() and len(field) < 10 and int(field) for field in fields):
        raise UserError(
            f"model {spec!r}: {sizes!r} is not a list of layer sizes",
            hint="write whole numbers of 1 or more, such as mlp:128,64",
        )
    return tuple(int(field) for field in fields)


def _classifier(sizes: Sizes, *, normed: bool) -> Model:
    layers: list[Layer] = []
    width = sizes.features
    for size in sizes.hidden:
        layers.append(Linear(width, size, first=not layers, gain=1.0 if normed else GAINS[sizes.activation]))
        if normed:
            layers.append(BatchNorm(size))
        layers.append(ACTIVATIONS[sizes.activation]())
        if sizes.dropout:
            layers.append(Dropout(sizes.dropout))
        width = size
    layers.append(Linear(width, sizes.outputs))
    numbered = {f"{number}.": layer for number, layer in enumerate(layers)}
    return Chain(numbered, SoftmaxCrossEntropy(), features=sizes.features)


TORCH_NAMES = {"W": "weight", "b": "bias", "gamma": "weight", "beta": "bias"}


def torch_state(state: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a model (parameters, buffers or both), translated. Arrays have their own shapes, no stack axis."""
    translated = {}
    for name, array in state.items():
        prefix, dot, kind = name.rpartition(".")
        transposed = np.ascontiguousarray(array.T) if kind == "W" else array
        translated[prefix + dot + TORCH_NAMES.get(kind, kind)] = transposed
    return translated
