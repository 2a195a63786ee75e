"""linear: outputs = W x + b, nothing else.

    build("linear", "", shape=(10,), outputs=1)

The parameters are those of the NumPy engine's `linear`; `torch_names.py` translates. They start as torch starts them.
"""

from typing import final

from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.torch.nets.request import Request


@final
class FlatLinear(nn.Linear):
    """nn.Linear over all features of a sample: (b, *shape) -> (b, outputs)."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(1))


def linear(request: Request) -> nn.Module:
    """No size, no activation, no dropout: there is no hidden layer."""
    if request.args or request.activation or request.dropout:
        raise UserError(
            f"model {request.spec!r} with sizes, activation or dropout: linear has no hidden layer",
            hint="use --model mlp for one with hidden layers",
        )
    return FlatLinear(request.features, request.outputs)
