"""NetworkRequest: what was asked for of a network, checked, and read in the ways that networks need it.

The one idea: a network's file reads like the network; every complaint about what was given is made here.

    NetworkRequest("cnn", "16,32", (28, 28), 10, "", 0.0).sizes((16, 32))

Limits: imports no torch; does not know whether the outputs are classes or numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from unisono.errors import UserError, unknown_name
from unisono.models.activations import ACTIVATIONS, OWN_ACTIVATIONS

MOST_COLOURS = 4
"""Channels of photographs; so few columns of pixels have none."""


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether samples of `shape` look like images (height, width, channels)."""
    return len(shape) == 3 and shape[2] <= MOST_COLOURS < min(shape[:2])


@final
@dataclass(frozen=True)
class NetworkRequest:
    """The arguments of `build`. A `UserError` if no network could make sense of them."""

    name: str
    args: str
    shape: tuple[int, ...]
    outputs: int
    activation: str
    dropout: float

    def __post_init__(self) -> None:
        if self.activation and self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout is {self.dropout}", hint="give a probability of 0 or more and below 1")
        if self.features < 1 or self.outputs < 1:
            raise UserError(
                f"model {self.spec!r} for samples of shape {self.shape} and {self.outputs} outputs",
                hint="give data with at least one feature and one output",
            )

    @property
    def spec(self) -> str:
        """As it stands after --model."""
        return f"{self.name}:{self.args}" if self.args else self.name

    @property
    def features(self) -> int:
        return math.prod(self.shape)

    @property
    def chosen_activation(self) -> str:
        """What was asked for, or the network's own."""
        return self.activation or OWN_ACTIVATIONS[self.name]

    def sizes(self, default: tuple[int, ...]) -> tuple[int, ...]:
        """`args` as a list of sizes: "128,64"; none: the default."""
        if not self.args:
            return default
        fields = self.args.split(",")
        if not all(map(_is_size, fields)):
            raise UserError(
                f"model {self.spec!r}: {self.args!r} is not a list of sizes",
                hint=f"write whole numbers of 1 or more, such as {self.name}:{','.join(map(str, default))}",
            )
        return tuple(int(field) for field in fields)

    def named_sizes(self, default: Mapping[str, int]) -> dict[str, int]:
        """`args` as sizes by name: "layers=2,width=64"; those left out are the default's."""
        example = f"{self.name}:" + ",".join(f"{key}={size}" for key, size in default.items())
        found = dict(default)
        for word in filter(None, self.args.split(",")):
            key, _, text = (piece.strip() for piece in word.partition("="))
            if key not in default:
                raise unknown_name(f"option in model {self.spec!r}:", key, default)
            if not _is_size(text):
                hint = f"write whole numbers of 1 or more, as in {example}"
                raise UserError(f"model {self.spec!r}: {key} is {text!r}", hint=hint)
            found[key] = int(text)
        return found

    def image(self, least: int) -> tuple[int, int, int]:
        """(channels, height, width) of a sample, neither side below `least`."""
        if len(self.shape) not in (2, 3):
            raise UserError(
                f"model {self.spec!r} needs images, samples of these data have shape {self.shape}",
                hint="use data of shape (rows, height, width) or (rows, channels, height, width), or --model mlp",
            )
        channels, height, width = (1, *self.shape)[-3:]
        if channels_last(self.shape):  # it would train, and learn little
            raise UserError(
                f"model {self.spec!r} would read samples of shape {self.shape} as {channels} channels of {height} x "
                f"{width} pixels: their channels come last",
                hint="put the channels first: x.transpose(0, 3, 1, 2)",
            )
        if min(height, width) < least:
            raise UserError(
                f"model {self.spec!r} needs images of {least} x {least} pixels or more, found {height} x {width}",
                hint="use larger images, or --model mlp",
            )
        return channels, height, width


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0
