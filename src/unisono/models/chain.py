"""Chain: a model made of layers one after the other and a loss; the loop forward, loss, backward.

The one idea: for each shape of call (k, b, features) all layers are opened once, with their memory, and kept as a
`ChainPlan`; a call then only walks two lists of bound methods.

    model = Chain({"0.": Linear(784, 10, first=True)}, SoftmaxCrossEntropy(), features=784)

Limits: the memory of every shape is kept; a run has few (the usual one, the ragged end, evaluation). A run that
diverges overflows in here, and NumPy warns: a trainer that looks at its losses silences that around its loop.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import final

import numpy as np

from unisono import aligned
from unisono.errors import UserError
from unisono.models.base import Array, Layout, Model, Noise, ShardSums
from unisono.models.layers import Layer, Room
from unisono.models.losses import Loss


@final
class Chain(Model):
    """`layers`: in order, each by the prefix of its parameters' names. The first should be a `Linear(first=True)`."""

    def __init__(self, layers: Mapping[str, Layer], loss: Loss, *, features: int) -> None:
        self._named, self._layers, self._loss, self._features = layers, tuple(layers.values()), loss, features
        self.layout = _joined({prefix: layer.layout for prefix, layer in layers.items()})
        self.buffers_layout = _joined({prefix: layer.buffers_layout for prefix, layer in layers.items()})
        self.classifies = loss.classifies
        self._draws = any(layer.draws for layer in self._layers)
        self._plans: dict[tuple[int, ...], ChainPlan] = {}

    def wrapped(self, layer: Callable[[str, Layer], Layer], loss: Callable[[Loss], Loss]) -> "Chain":
        """A new chain of the same layers and loss, each given to the function that wraps it, layers with their name."""
        layers = {prefix: layer(prefix.rstrip("."), inner) for prefix, inner in self._named.items()}
        return Chain(layers, loss(self._loss), features=self._features)

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        for layer, part, state in zip(self._layers, self._cut(params), self._cut_buffers(buffers), strict=True):
            layer.init(part, state, rng)

    def bind(self, params: Array, buffers: Array) -> None:
        self._params, self._buffers = params, buffers
        self._plans.clear()

    def loss_and_grad(self, x: Array, y: Array, grads: Array, scale: float, noise: Noise | None = None) -> ShardSums:
        plan = self._plans.get(x.shape) or self._open(x.shape)
        if grads is not plan.grads:
            plan.bind_grads(grads, self._cut(grads))
        if self._draws:
            plan.noise[:] = _generators(noise, len(x))
        array = plan.read(x)  # (k, b, features)
        for forward in plan.forwards:
            array = forward(array)
        plan.loss.forward(array, y)
        array = plan.loss.backward(scale)
        for backward in plan.backwards:
            array = backward(array)
        return plan.trained

    def evaluate(self, x: Array, y: Array) -> ShardSums:
        plan = self._plans.get(x.shape) or self._open(x.shape)
        array = plan.read(x)  # (k, b, features)
        for infer in plan.infers:
            array = infer(array)
        plan.loss.forward(array, y)
        return plan.evaluated

    def _open(self, shape: tuple[int, ...]) -> "ChainPlan":
        if len(shape) != 3 or shape[2] != self._features or 0 in shape:
            raise UserError(
                f"the model takes samples of {self._features} features, as (shards, samples, {self._features}); "
                f"the data has shape {shape}",
                hint="build the model for the features of the data; leave out empty shards",
            )
        plan = ChainPlan(self._layers, self._loss, shape, self._cut(self._params), self._cut_buffers(self._buffers))
        self._plans[shape] = plan
        return plan

    def _cut(self, flat: Array) -> list[Array]:
        """Each layer's stretch of the parameters, or of a stack of gradients."""
        return _stretches(flat, [layer.layout.length for layer in self._layers])

    def _cut_buffers(self, flat: Array) -> list[Array]:
        return _stretches(flat, [layer.buffers_layout.length for layer in self._layers])


@final
class ChainPlan:
    """All layers opened for one shape, and the sums that a call returns."""

    def __init__(
        self,
        layers: Sequence[Layer],
        loss: Loss,
        shape: tuple[int, ...],
        params: Sequence[Array],
        buffers: Sequence[Array],
    ) -> None:
        shards, batch, width = shape
        dtype = params[0].dtype
        new_buffers = aligned.stack(shards, (sum(len(part) for part in buffers),), dtype)
        self.noise: list[np.random.Generator] = []
        self._passes = []
        for layer, part, state, new in zip(
            layers, params, buffers, _stretches(new_buffers, [len(part) for part in buffers]), strict=True
        ):
            self._passes.append(layer.open(Room((shards, batch, width), part, state, new, self.noise)))
            width = layer.width(width)
        self.forwards = [layer.forward for layer in self._passes]
        self.infers = [layer.infer for layer in self._passes]
        self.backwards = [layer.backward for layer in reversed(self._passes)]
        self.loss = loss.open((shards, batch, width), dtype)
        loss_sum, correct = self.loss.sums.T  # (k,) each
        self.trained = ShardSums(loss_sum, correct, new_buffers)
        self.evaluated = ShardSums(loss_sum, correct, new_buffers[:, :0])
        self.grads: Array | None = None
        self._x: Array | None = None
        self._dtype = dtype

    def read(self, x: Array) -> Array:
        """x as a stack of the model's type: anything else would be computed by other kernels, with other bits."""
        if x is self._x:  # loaders fill the same array again and again
            return x
        found = aligned.as_stack(x, self._dtype)
        self._x = x if found is x else None
        return found

    def bind_grads(self, grads: Array, parts: Sequence[Array]) -> None:
        """Gradients go into `grads` (k, length or more) from now on."""
        if len(grads) != len(self.loss.sums):
            raise ValueError(f"grads has {len(grads)} rows for {len(self.loss.sums)} shards")
        for layer, part in zip(self._passes, parts, strict=True):
            layer.bind_grads(part)
        self.grads = grads


def _joined(layouts: Mapping[str, Layout]) -> Layout:
    return Layout({prefix + name: shape for prefix, layout in layouts.items() for name, shape in layout.shapes.items()})


def _stretches(flat: Array, lengths: Sequence[int]) -> list[Array]:
    return [flat[..., start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]


def _generators(noise: Noise | None, shards: int) -> list[np.random.Generator]:
    if noise is None:
        raise TypeError("this network has dropout: loss_and_grad needs noise")
    return [noise(shard) for shard in range(shards)]
