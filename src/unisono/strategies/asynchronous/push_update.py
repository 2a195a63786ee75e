"""From a gradient to an update: ClippingAndMomentum at the worker before a push, PushUpdate at a master after it.

    clipping = ClippingAndMomentum(terms, velocity); clipping.apply(gradient)
    applying = PushUpdate(terms, options, length, state, collected); applying.apply(entry, gradient, places, numbers)

Clipping and momentum belong to the worker. It has the whole gradient, so its norm needs no exchange; and momentum at
the masters would mix directions of many workers and make stale gradients count again and again.

A master applies the rule for stale gradients, then the optimizer, to its part of the parameters. The one idea: the
update depends on the entry of the log, the gradient and the parameters that the worker had seen, so any master, over
shared memory or messages, computes the same; gradients that were collected before are the caller's memory, and can be
taken back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from unisono.optim import make
from unisono.optim.gradient_norms import clip_factor
from unisono.optim.options import OptimizerOptions
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.sequencer import FLUSH, PUSH, Entry
from unisono.strategies.asynchronous.staleness_rules import compensate


@final
class ClippingAndMomentum:
    """velocity: float32, as long as the gradient; None without momentum."""

    def __init__(self, terms: AsyncOptions, velocity: np.ndarray | None) -> None:
        self._clip, self._momentum, self._nesterov = terms.clip, np.float32(terms.momentum), terms.nesterov
        self._velocity = velocity
        self.clips = 0
        """How many gradients were too long."""

    def start(self) -> None:
        """The velocity starts anew with every greeting, so that snapshots need not contain it."""
        if self._velocity is not None:
            self._velocity[...] = 0.0

    def apply(self, gradient: np.ndarray) -> None:
        """In place."""
        velocity = self._velocity
        if self._clip:
            factor = clip_factor(float(np.sqrt(np.dot(gradient, gradient))), self._clip)
            if factor != 1.0:
                self.clips += 1
                np.multiply(gradient, np.float32(factor), out=gradient)
        if velocity is None:
            return
        np.multiply(velocity, self._momentum, out=velocity)
        np.add(velocity, gradient, out=velocity)
        if self._nesterov:
            gradient += self._momentum * velocity
        else:
            gradient[...] = velocity


PIECE = 256 * 1024
"""Elements that are walked over at once, so that what is written twice is still in the cache the second time."""


@final
@dataclass(frozen=True)
class Places:
    """Where an entry finds the parameters and where it leaves them, float32 (n,) each."""

    current: np.ndarray
    """As they are."""
    seen: np.ndarray
    """As the worker had them when it computed its gradient."""
    new: np.ndarray
    """As they will be: `current` itself, or what the worker is answered with, which may be `seen`."""


class Numbers(NamedTuple):
    """The numbers of an entry in the whole run, from 1."""

    push: int
    """What the learning rate's schedule goes by."""
    update: int
    """What an optimizer goes by, for Adam corrects its bias; where pushes were dropped, a few too many."""


@final
class PushUpdate:
    """The update of one stretch of `length` elements; `collected` only for a rule that collects."""

    def __init__(
        self,
        terms: AsyncOptions,
        options: OptimizerOptions,
        length: int,
        state: Sequence[np.ndarray],
        collected: np.ndarray | None,
    ) -> None:
        self._terms, self._optimizer = terms, make(options)
        self._state, self._collected = state, collected
        # What `Sgd` does, from one vector to another; its own way is in place, which needs a copy before.
        self._walks = options.name == "sgd" and not options.weight_decay and not options.momentum
        self._scratch = np.empty(length if terms.rule.collects or terms.rule.compensates else 0, np.float32)
        self.weight = 0
        """Samples of the gradients that are collected and not applied yet."""

    def apply(self, entry: Entry, gradient: np.ndarray, places: Places, numbers: Numbers) -> None:
        """Entries that update nothing leave a copy of what is there."""
        current, new, terms = places.current, places.new, self._terms
        if entry.kind in (PUSH, FLUSH):
            if self._collected is not None:
                gradient = self._collect(entry, gradient, self._collected)
            elif terms.rule.compensates:
                compensate(gradient, current, places.seen, self._scratch)
                gradient = self._scratch
        if not entry.updates:
            if new is not current:
                new[...] = current
            return
        lr = terms.lr(numbers.push) * terms.rule.rate(entry.staleness, terms.workers)
        if self._walks and new is not current:
            _walk(gradient, current, new, np.float32(lr))
            return
        if new is not current:
            new[...] = current
        self._optimizer.update(new, gradient, self._state, lr, numbers.update)

    def _collect(self, entry: Entry, gradient: np.ndarray, collected: np.ndarray) -> np.ndarray:
        """Adds a gradient to those collected, weighted by its samples; their mean, if they are complete.

        What is left at the end of an epoch counts as part of a whole group: the mean of a few gradients is too noisy
        for the learning rate of one of many.
        """
        if entry.kind == PUSH:
            np.multiply(gradient, np.float32(entry.samples), out=self._scratch)
            np.add(self._scratch, collected if self.weight else np.float32(0.0), out=collected)
            self.weight += entry.samples
        if entry.updates:
            whole = self.weight if entry.kind == PUSH else max(self.weight, self._terms.group * self._terms.push)
            np.multiply(collected, np.float32(1.0 / whole), out=self._scratch)
            self.weight = 0
        return self._scratch


def _walk(gradient: np.ndarray, current: np.ndarray, new: np.ndarray, rate: np.float32) -> None:
    """new = current - rate * gradient."""
    for start in range(0, len(current), PIECE):
        stop = min(start + PIECE, len(current))
        change = np.multiply(gradient[start:stop], rate, out=new[start:stop])
        np.subtract(current[start:stop], change, out=change)


def numbers_of(entry: Entry, epoch: int, pushes: int, group: int) -> Numbers:
    """pushes: of an epoch; group: how many of them make one update.

    >>> entry = Entry(PUSH, rank=1, batch=0, staleness=0, turn=2, ordinal=5, updates=1, samples=16)
    >>> numbers_of(entry, epoch=2, pushes=10, group=3)
    Numbers(push=16, update=6)
    """
    ordinal = min(entry.ordinal, pushes - 1)  # what is left at the end of an epoch comes after its last push
    return Numbers((epoch - 1) * pushes + ordinal + 1, (epoch - 1) * -(-pushes // group) + ordinal // group + 1)
