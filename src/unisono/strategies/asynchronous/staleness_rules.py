"""Bounds: how stale a gradient may be, and what happens when it would be staler.

The one idea: with `wait` nobody is ever too stale, because a push that would make another worker's too stale waits for
it (stale-synchronous parallel, Ho et al., NIPS 2013); with `drop` nobody waits, and what is too stale is not applied.

>>> StalenessBound.parse("6:drop", workers=4, usual=8), StalenessBound.parse("", workers=4, usual=8),
StalenessBound.parse("none", 4, 8) (StalenessBound(most=6, drop=True), StalenessBound(most=8, drop=False), None)
>>> may_pass(7, [3], bound=4), may_pass(6, [3], bound=4), may_pass(6, [3, 3], bound=4)
(False, True, False)

Rules: what a master makes of a gradient that was computed on parameters which have changed since.

The one idea: a rule is a factor for the learning rate, a function of the gradient's staleness tau (how often the
parameters were updated between pull and push) and of the number N of workers; two of them do something else besides.

>>> [RULES[name].rate(6, 4) for name in ("plain", "scaled", "safe")]
[1.0, 0.16666666666666666, 0.16666666666666666]
>>> RULES["safe"].rate(3, 4), RULES["safe"].rate(0, 4), RULES["scaled"].rate(0, 4)
(0.25, 0.25, 1.0)

Why `plain` fails: a gradient that is tau updates late is one of a system with delay, stable only for learning rates
below about pi / (2 * (2 * tau + 1)) of what a step without delay may take. With N workers tau is about N - 1, so what
works with one worker diverges with many.

Limits: staleness is counted in updates of the whole vector, the same on all masters.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from unisono.errors import UserError, unknown_name

_FORM = re.compile(r"(\d+)(?::(wait|drop))?")


@final
@dataclass(frozen=True)
class StalenessBound:
    """At most `most` updates between pull and push."""

    most: int
    drop: bool = False

    @classmethod
    def parse(cls, text: str, workers: int, usual: int) -> "StalenessBound | None":
        """From --max-staleness: "12", "12:wait", "12:drop", "none"; "": `usual`, waiting. None (or 0): no bound."""
        if text == "none":
            return None
        found = _FORM.fullmatch(text or str(usual))
        if found is None:
            raise UserError(
                f"--max-staleness is {text!r}", hint="give a number, with :wait or :drop after it if you like, or none"
            )
        most, drop = int(found[1]), found[2] == "drop"
        if not text and not most:
            return None
        if not drop and most < workers - 1:
            raise UserError(
                f"--max-staleness {text}: {workers} workers that start together are {workers - 1} updates apart, so "
                "they would wait for ever",
                hint=f"give {workers - 1} or more, or {most}:drop",
            )
        return cls(most, drop)


def may_pass(version: int, stamps: Iterable[int], bound: int) -> bool:
    """Whether one more update, after `version` of them, leaves time for all others, which pulled at `stamps`.

    If they push one after the other, the one that pulled first being first, none is staler than `bound`. As long as
    only pushes that pass are taken, the one that pulled first always passes: nobody waits for ever.
    """
    return all(version + 1 + turn - stamp <= bound for turn, stamp in enumerate(sorted(stamps)))


Rate: TypeAlias = Callable[[int, int], float]
SAFE_CLIP = 5.0
"""The largest norm of a gradient under `safe`, unless --clip says otherwise."""
VARIANCE = 0.04
"""The weight of delay compensation, the paper's for CIFAR-10."""


def plain(staleness: int, workers: int) -> float:
    """w -= eta * g, whatever the staleness: Downpour SGD (Dean et al., Large Scale Distributed Deep Networks, 2012)."""
    return 1.0


def scaled(staleness: int, workers: int) -> float:
    """w -= eta / tau * g: staleness-aware SGD (Zhang, Gupta, Lian, Liu, arXiv 1511.05950); tau of at least 1."""
    return 1.0 / max(1, staleness)


def safe(staleness: int, workers: int) -> float:
    """w -= eta / max(N, tau) * g: N pushes move as far as one step of the mean of N gradients would.

    `scaled` with a floor, so that a gradient which happens to be fresh is not trusted N times more than the others;
    with gradients clipped by their norm (Pascanu, Mikolov, Bengio, arXiv 1211.5063) and tau bounded by 2 N.
    """
    return 1.0 / max(workers, staleness)


def softsync(staleness: int, workers: int) -> float:
    """w -= eta * mean of N gradients, whoever they come from: 1-softsync (Gupta, Zhang, Wang, arXiv 1509.04210).

    k < N gradients that are left at the end of an epoch count k / N: plain SGD moves by that part of a step.
    """
    return 1.0


def delay_compensated(staleness: int, workers: int) -> float:
    """w -= eta * (g + lambda * g * g * (w - w_seen)), element by element: DC-ASGD (Zheng et al., arXiv 1609.08326).

    g * g stands for the diagonal of the Hessian, so this is what the gradient would be at w, to first order.
    """
    return 1.0


@final
@dataclass(frozen=True)
class Rule:
    """One row of the table."""

    rate: Rate
    """rate(staleness, workers): a factor for the learning rate."""
    collects: bool = False
    """Whether gradients are gathered until there is one for each worker, and then applied as one."""
    compensates: bool = False
    """Whether gradients are corrected for how far the parameters have moved (`compensate`)."""
    clip: float = 0.0
    """The largest norm of a gradient, unless the recipe gives one; 0: none."""
    bound: int = 0
    """The largest staleness in multiples of the workers, unless the recipe gives one; 0: none."""


RULES = {
    "safe": Rule(safe, clip=SAFE_CLIP, bound=2),
    "softsync": Rule(softsync, collects=True),
    "plain": Rule(plain),
    "scaled": Rule(scaled),
    "delay-compensated": Rule(delay_compensated, compensates=True),
}


def find_rule(name: str) -> Rule:
    """The rule of a name, or a `UserError` that lists all."""
    if name not in RULES:
        raise unknown_name("--staleness-rule", name, RULES)
    return RULES[name]


def compensate(gradient: np.ndarray, params: np.ndarray, seen: np.ndarray, out: np.ndarray) -> None:
    """out = gradient + VARIANCE * gradient^2 * (params - seen); float32 (n,), `out` is none of the others."""
    np.subtract(params, seen, out=out)
    np.multiply(out, gradient, out=out)
    np.multiply(out, gradient, out=out)
    np.multiply(out, np.float32(VARIANCE), out=out)
    np.add(out, gradient, out=out)
