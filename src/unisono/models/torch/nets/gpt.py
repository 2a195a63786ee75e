"""gpt: a small decoder-only transformer over characters; at each place it says what the next one may be.

The one idea: the usual pre-norm blocks, attention that sees no later place, and one matrix that both reads tokens and
scores them (tied), so it is one parameter, not two that must be kept equal.

    build("gpt", "layers=2,heads=2,width=64", shape=(64,), outputs=67)     # 64 places, 67 characters
    --model gpt:layers=5,heads=4,width=128 --data corpus.txt:context=128   # about a million parameters

Sizes that are left out are the defaults: 2 layers, 2 heads, width 64. The number of places is the data's (`context`).
Reads whole numbers (b, T), T up to that number; gives (b, T, outputs). Activation: GELU unless told otherwise. Dropout:
on the embedding, the attention weights, and what each block adds.
Limits: no cache for generation.
"""

from dataclasses import asdict, dataclass
from math import sqrt
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from unisono.errors import UserError
from unisono.models.torch.nets.layers import ACTIVATIONS
from unisono.models.torch.nets.network_request import NetworkRequest

STD = 0.02
"""Deviation of the starting values; of those that add to the stream it is smaller, the more of them there are."""


@final
@dataclass(frozen=True)
class Sizes:
    """What stands after `gpt:`."""

    layers: int = 2
    heads: int = 2
    width: int = 64


@final
class Attention(nn.Module):
    """Every place looks at itself and those before it."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = sizes.heads, dropout
        self.read = nn.Linear(sizes.width, 3 * sizes.width)
        self.add = nn.Linear(sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        b, places, width = x.shape
        split = self.read(x).view(b, places, 3, self.heads, width // self.heads)  # (b, T, 3, heads, w)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # (b, heads, T, w) each
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)  # (b, heads, T, w)
        added: Tensor = self.add(y.transpose(1, 2).reshape(b, places, width))  # (b, T, width)
        return added


@final
class Block(nn.Module):
    """Attention, then a hidden layer of four times the width, each on what is normed and added to the stream."""

    def __init__(self, sizes: Sizes, activation: type[nn.Module], dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
        self.attention = Attention(sizes, dropout)
        self.widen, self.activation = nn.Linear(sizes.width, 4 * sizes.width), activation()
        self.add = nn.Linear(4 * sizes.width, sizes.width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm_1(x)))  # (b, T, width)
        x = x + self.drop(self.add(self.activation(self.widen(self.norm_2(x)))))  # (b, T, width)
        return x


@final
class GPT(nn.Module):
    """(b, T) int64 -> (b, T, vocabulary) scores of the next token."""

    def __init__(
        self, sizes: Sizes, context: int, vocabulary: int, activation: type[nn.Module], dropout: float
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, sizes.width), nn.Embedding(context, sizes.width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(sizes, activation, dropout) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.width)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                added = name.endswith("add.weight")  # two of them a block
                nn.init.normal_(parameter, std=STD / sqrt(2 * sizes.layers) if added else STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.dtype != torch.int64:
            raise UserError(
                f"gpt reads text, whole numbers that stand for characters; it was given {tokens.dtype}",
                hint="use --data FILE.txt or synthetic-text",
            )
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]  # (b, T, width)
        x = self.norm(self.blocks(self.drop(x)))  # (b, T, width)
        return functional.linear(x, self.tokens.weight)  # (b, T, vocabulary)


def gpt(request: NetworkRequest) -> nn.Module:
    """As `Sizes` say unless told otherwise."""
    if "context" in request.args:
        raise UserError(
            f"model {request.spec!r}: the context is the data's", hint="write --data FILE.txt:context=64 instead"
        )
    sizes = Sizes(**request.named_sizes(asdict(Sizes())))
    if sizes.width % sizes.heads:
        raise UserError(
            f"model {request.spec!r}: {sizes.heads} heads do not divide a width of {sizes.width}",
            hint=f"give a width such as {-(-sizes.width // sizes.heads) * sizes.heads}",
        )
    if len(request.shape) != 1 or request.outputs < 2:
        raise UserError(
            f"model {request.spec!r} needs text, samples of these data have shape {request.shape} and "
            f"{request.outputs} outputs",
            hint="use --data FILE.txt or synthetic-text",
        )
    activation = ACTIVATIONS[request.chosen_activation]
    return GPT(sizes, request.shape[0], request.outputs, activation, request.dropout)
