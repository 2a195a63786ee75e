"""linear, mlp and bn-mlp: networks over all features of a sample.

The one idea: module by module these are the NumPy engine's networks (`models/nets.py`), so weights can move between the
engines; `torch_state` there translates names. linear is outputs = W x + b; mlp has a linear layer and an activation
for each hidden size, then linear; bn-mlp has batch norm between them.

    build("linear", "", shape=(10,), outputs=1)
    build("mlp", "128,64", shape=(28, 28), outputs=10, activation="sigmoid")
    build("bn-mlp", "32", shape=(512,), outputs=20)

Starting values have the NumPy engine's ranges (`GAINS`; linear: torch's), but torch draws them, so the numbers differ.
"""

from math import sqrt
from typing import final

from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.activations import GAINS
from unisono.models.torch.nets.layers import ACTIVATIONS, BatchNorm1d
from unisono.models.torch.nets.network_request import NetworkRequest


@final
class FlatLinear(nn.Linear):
    """nn.Linear over all features of a sample: (b, *shape) -> (b, outputs)."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(1))


def linear(request: NetworkRequest) -> nn.Module:
    """No size, no activation, no dropout: there is no hidden layer."""
    if request.args or request.activation or request.dropout:
        raise UserError(
            f"model {request.spec!r} with sizes, activation or dropout: linear has no hidden layer",
            hint="use --model mlp for one with hidden layers",
        )
    return FlatLinear(request.features, request.outputs)


@final
class Rows(nn.Sequential):
    """Layers one after the other, over all features of a sample: (b, *shape) -> (b, outputs)."""

    def forward(self, input: Tensor) -> Tensor:
        x = input.flatten(1)  # (b, features)
        for layer in self:
            x = layer(x)
        return x  # (b, outputs)


def mlp(request: NetworkRequest) -> nn.Module:
    """Hidden sizes 128 and 64, sigmoid."""
    layers: list[nn.Module] = []
    activation = request.chosen_activation
    width = request.features
    for size in request.sizes((128, 64)):
        layers += [_wide_linear(width, size, GAINS[activation]), ACTIVATIONS[activation](), *_dropout(request)]
        width = size
    return Rows(*layers, nn.Linear(width, request.outputs))


def bn_mlp(request: NetworkRequest) -> nn.Module:
    """One hidden size, 32, ReLU."""
    layers: list[nn.Module] = []
    activation = request.chosen_activation
    width = request.features
    for size in request.sizes((32,)):
        layers += [nn.Linear(width, size), BatchNorm1d(size), ACTIVATIONS[activation](), *_dropout(request)]
        width = size
    return Rows(*layers, nn.Linear(width, request.outputs))


def _wide_linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    bound = gain / sqrt(inputs)
    # Drawn again, not multiplied: torch multiplies in threads, which a process that forks must not have.
    nn.init.uniform_(layer.weight, -bound, bound)
    return layer


def _dropout(request: NetworkRequest) -> list[nn.Module]:
    return [nn.Dropout(request.dropout)] if request.dropout else []
