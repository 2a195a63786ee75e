"""Behaviour added by wrapping a model, never by changing one.

    Slowed(model, factor=4.0).loss_and_grad(x, y, grads, scale)           # `slowed.py`

`Wrapper` passes everything on; a subclass overrides what it changes. What a model is (layouts, flags) is read once:
models do not change it after they were made.
"""

from collections.abc import Sequence

import numpy as np

from unisono.models.base import Array, Exchange, Model, Noise, Part, ShardSums


class Wrapper(Model):
    """Passes every call on to `inner`."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.layout, self.buffers_layout = inner.layout, inner.buffers_layout
        self.unaveraged, self.fixed, self.may_skip_params = inner.unaveraged, inner.fixed, inner.may_skip_params
        self.exchange_width, self.classifies, self.state_names = (
            inner.exchange_width,
            inner.classifies,
            inner.state_names,
        )

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        self.inner.init(params, buffers, rng)

    def bind(self, params: Array, buffers: Array) -> None:
        self.inner.bind(params, buffers)

    def loss_and_grad(self, x: Array, y: Array, grads: Array, scale: float, noise: Noise | None = None) -> ShardSums:
        return self.inner.loss_and_grad(x, y, grads, scale, noise)

    def loss_and_grad_together(
        self, parts: Sequence[Part], scale: float, exchange: Exchange | None = None
    ) -> list[ShardSums]:
        return self.inner.loss_and_grad_together(parts, scale, exchange)

    @property
    def exchange_s(self) -> float:
        return self.inner.exchange_s

    def evaluate(self, x: Array, y: Array) -> ShardSums:
        return self.inner.evaluate(x, y)

    def check_reproducible(self) -> None:
        self.inner.check_reproducible()

    def named(self, params: Array, buffers: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        return self.inner.named(params, buffers)
