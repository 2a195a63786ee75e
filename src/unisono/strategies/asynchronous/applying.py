"""Applying: what a push does to a stretch of the parameters: the rule, then the optimizer.

The one idea: it depends on the entry of the log, the gradient and what the worker had seen, so any master, over shared
memory or messages, does the same; what was collected before is the caller's memory, and can be taken back.

    applying = Applying(terms, options, params, state, collected); applying.apply(entry, gradient, seen, number=7)
"""

from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.asynchronous.clerk import FLUSH, PUSH, Entry
from unisono.strategies.asynchronous.rules import compensate
from unisono.strategies.asynchronous.terms import Terms


@final
class Applying:
    """Of one stretch: float32 (n,) each; `collected` only for a rule that collects."""

    def __init__(
        self,
        terms: Terms,
        options: OptimizerOptions,
        params: np.ndarray,
        state: Sequence[np.ndarray],
        collected: np.ndarray | None,
    ) -> None:
        self._terms, self._optimizer = terms, make(options)
        self._params, self._state, self._collected = params, state, collected
        self._scratch = np.empty_like(params)
        self.weight = 0
        """Samples of the gradients that are collected and not applied yet."""

    def changes(self, entry: Entry) -> bool:
        """Whether `apply` would change anything."""
        return entry.kind in (PUSH, FLUSH)

    def apply(self, entry: Entry, gradient: np.ndarray, seen: np.ndarray, number: int) -> None:
        """number: of the push in the whole run, from 1. seen: the parameters that the gradient was computed on."""
        terms = self._terms
        if self._collected is not None:
            gradient = self._collect(entry, gradient, self._collected)
        elif terms.rule.compensates:
            compensate(gradient, self._params, seen, self._scratch)
            gradient = self._scratch
        if entry.updates:
            lr = terms.lr(number) * terms.rule.rate(entry.staleness, terms.workers)
            self._optimizer.update(self._params, gradient, self._state, lr, number)

    def _collect(self, entry: Entry, gradient: np.ndarray, collected: np.ndarray) -> np.ndarray:
        """Adds a gradient to those collected, weighted by its samples; their mean, if they are complete."""
        if entry.kind == PUSH:
            np.multiply(gradient, np.float32(entry.samples), out=self._scratch)
            np.add(self._scratch, collected if self.weight else np.float32(0.0), out=collected)
            self.weight += entry.samples
        if entry.updates:
            np.multiply(collected, np.float32(1.0 / self.weight), out=self._scratch)
            self.weight = 0
        return self._scratch


def number_of(entry: Entry, epoch: int, pushes: int) -> int:
    """Of an entry in the whole run, from 1."""
    return (epoch - 1) * pushes + min(entry.ordinal, pushes - 1) + 1
