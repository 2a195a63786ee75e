"""The learning rate of a step: a pure function of the step, so that a resumed run and every rank agree on it.

The one idea: lr * (how far warmed up) * (what the schedule says at this step); steps count from 1, as in `update`.

>>> plan = ScheduleOptions("cosine", warmup_epochs=1)
>>> [round(learning_rate(plan, 0.1, step, steps_per_epoch=2, epochs=3), 4) for step in range(1, 7)]
[0.05, 0.1, 0.1, 0.0854, 0.05, 0.0146]

Warm-up is linear (Goyal 2017) and ends, at the full rate, after `warmup_epochs`; whole steps are not needed. `cosine`
falls to 0 from there to the end (0 itself would be the step after the last), `step` counts whole epochs from the start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, inf, pi, sqrt
from typing import TypeAlias, final

from unisono.errors import unknown_name
from unisono.optim.options import check


@final
@dataclass(frozen=True)
class ScheduleOptions:
    """The course of the learning rate over a run."""

    name: str = "constant"
    warmup_epochs: float = 0.0
    drop: float = 0.1
    """step: the factor between one stage and the next."""
    stages: int = 3
    """step: the epochs are divided into so many stages, as equal as whole epochs allow."""

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise unknown_name("--schedule", self.name, SCHEDULES)
        check(0 <= self.warmup_epochs < inf, "--warmup-epochs", self.warmup_epochs, "a number of 0 or more")
        check(0 < self.drop <= 1, "--drop", self.drop, "a number above 0 and up to 1")
        check(self.stages >= 1, "--stages", self.stages, "1 or more")


def learning_rate(options: ScheduleOptions, lr: float, step: int, steps_per_epoch: int, epochs: int) -> float:
    """The learning rate of a step (from 1) in a run of epochs * steps_per_epoch steps."""
    warmup = options.warmup_epochs * steps_per_epoch
    warmed = min(1.0, step / warmup) if warmup else 1.0
    return lr * warmed * SCHEDULES[options.name](options, step - 1, steps_per_epoch, epochs)


def _constant(options: ScheduleOptions, done: int, steps_per_epoch: int, epochs: int) -> float:
    return 1.0


def _step(options: ScheduleOptions, done: int, steps_per_epoch: int, epochs: int) -> float:
    return options.drop ** (done // steps_per_epoch * options.stages // epochs)


def _cosine(options: ScheduleOptions, done: int, steps_per_epoch: int, epochs: int) -> float:
    warmup, total = options.warmup_epochs * steps_per_epoch, steps_per_epoch * epochs
    if done <= warmup:
        return 1.0
    if done >= total:
        return 0.0
    return 0.5 * (1 + cos(pi * (done - warmup) / (total - warmup)))


Schedule: TypeAlias = Callable[[ScheduleOptions, int, int, int], float]

SCHEDULES: dict[str, Schedule] = {"constant": _constant, "step": _step, "cosine": _cosine}
"""name -> the factor after `done` steps."""

RULES: dict[str, Callable[[float], float]] = {"none": lambda ratio: 1.0, "linear": lambda ratio: ratio, "sqrt": sqrt}
"""name -> the factor for a batch `ratio` times as large as the one for which the learning rate was chosen."""


def scaled(lr: float, rule: str, global_batch: int, base_batch: int) -> float:
    """The learning rate for `global_batch`, if `lr` suits `base_batch`, which is the batch of one rank: with `linear`
    (Goyal 2017), k ranks of the same batch each learn at k times the rate, and should warm up."""
    if rule not in RULES:
        raise unknown_name("--scale-lr", rule, RULES)
    return lr * RULES[rule](global_batch / base_batch)
