"""Wrappers of a model: behaviour is added by wrapping a model, never by changing one.

`Wrapper` passes every call on; a subclass overrides what it changes. The attributes of a model (layouts, flags) are
read once: models do not change them after they were made.

`Slowed` is a model whose computing takes several times as long, to try a run with a slow rank. It sleeps after each
call instead of burning cycles: the core is free for others, as that of a slower machine would be. A sleep that was too
long is taken off the next ones, so the factor holds on average.

    factors = parse_slow("1:4,3:1.5", ranks=4)           # rank -> factor
    Slowed(model, factors[1]).loss_and_grad(x, y, grads, scale)

Limits: `Slowed` does not slow loading, summing and updating, nor the waits for other shards inside synchronised batch
norm.
"""

import time
from collections.abc import Sequence
from math import isfinite
from typing import final

import numpy as np

from unisono.errors import UserError
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


def parse_slow(text: str, ranks: int) -> dict[int, float]:
    """The factors of `--slow`, by rank; a `UserError` for what cannot be."""
    found: dict[int, float] = {}
    for entry in text.split(",") if text else []:
        name, _, number = entry.partition(":")
        try:
            rank, factor = int(name), float(number)
        except ValueError:
            raise UserError(f"--slow {text}: {entry!r} is not RANK:FACTOR", hint="for example --slow 1:4") from None
        if not 0 <= rank < ranks:
            raise UserError(
                f"--slow {text}: there is no rank {rank}", hint=f"ranks are 0 to {ranks - 1} here; --slow '' for none"
            )
        if not (isfinite(factor) and factor >= 1):
            raise UserError(f"--slow {text}: a factor of {number}", hint="give 1 or more: 4 takes four times as long")
        if rank in found:
            raise UserError(f"--slow {text}: rank {rank} is there twice", hint="give each rank once")
        found[rank] = factor
    return found


@final
class Slowed(Wrapper):
    """Takes `factor` times as long as `inner`, 1 or more."""

    def __init__(self, inner: Model, factor: float) -> None:
        super().__init__(inner)
        self._factor = factor
        self._owed_s = 0.0

    def loss_and_grad(self, x: Array, y: Array, grads: Array, scale: float, noise: Noise | None = None) -> ShardSums:
        begun = time.perf_counter()
        found = self.inner.loss_and_grad(x, y, grads, scale, noise)
        self._sleep_after(time.perf_counter() - begun)
        return found

    def loss_and_grad_together(
        self, parts: Sequence[Part], scale: float, exchange: Exchange | None = None
    ) -> list[ShardSums]:
        begun, before_s = time.perf_counter(), self.inner.exchange_s
        found = self.inner.loss_and_grad_together(parts, scale, exchange)
        self._sleep_after(time.perf_counter() - begun - (self.inner.exchange_s - before_s))
        return found

    def evaluate(self, x: Array, y: Array) -> ShardSums:
        begun = time.perf_counter()
        found = self.inner.evaluate(x, y)
        self._sleep_after(time.perf_counter() - begun)
        return found

    def _sleep_after(self, computed_s: float) -> None:
        self._owed_s += (self._factor - 1) * max(0.0, computed_s)
        if self._owed_s > 0:
            begun = time.perf_counter()
            time.sleep(self._owed_s)
            self._owed_s -= time.perf_counter() - begun
