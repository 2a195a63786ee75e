"""What decides an update: the optimizer's name and numbers, checked when they are given.

The one idea: an `OptimizerOptions` that exists is valid, and has no open default: `momentum` and `weight_decay` depend
on the optimizer and are filled in.

>>> OptimizerOptions("nesterov", lr=0.1).momentum
0.9

Errors name the option as on the command line. Imports nothing heavy.
"""

from dataclasses import dataclass
from math import inf
from typing import final

from unisono.errors import UserError, unknown_name

OPTIMIZERS = {
    "sgd": "unisono.optim.sgd:Sgd",
    "momentum": "unisono.optim.sgd:Sgd",
    "nesterov": "unisono.optim.sgd:Sgd",
    "adam": "unisono.optim.adam:Adam",
    "adamw": "unisono.optim.adam:Adam",
    "lars": "unisono.optim.lars:Lars",
}

_MOMENTUM = {"momentum": 0.9, "nesterov": 0.9, "lars": 0.9}
_WEIGHT_DECAY = {"adamw": 0.01}
_LEAST_EPS = 1e-16  # must be seen beside the root of the least float32: else steps explode where gradients vanish


@final
@dataclass(frozen=True)
class OptimizerOptions:
    """The numbers of one optimizer; those that it does not use have no effect, except a momentum, which is refused."""

    name: str
    lr: float
    """The learning rate before schedule and scaling; `Optimizer.update` is told the one of its step."""
    momentum: float | None = None
    """None: 0.9 for momentum, nesterov and lars, else 0. `sgd` with a momentum is `momentum`."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float | None = None
    """None: 0.01 for adamw, else 0. Added to the gradient (L2), except by adamw, which shrinks the weights instead."""
    clip: float | None = None
    """The largest global norm of the gradients."""
    trust: float = 0.001
    """LARS' coefficient: how large a step may be in relation to the weights."""

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise unknown_name("--optimizer", self.name, OPTIMIZERS)
        if self.momentum is None:
            object.__setattr__(self, "momentum", _MOMENTUM.get(self.name, 0.0))
        if self.weight_decay is None:
            object.__setattr__(self, "weight_decay", _WEIGHT_DECAY.get(self.name, 0.0))
        self._check()

    def _check(self) -> None:
        momentum, weight_decay = self.momentum or 0.0, self.weight_decay or 0.0
        check(0 < self.lr < inf, "--lr", self.lr, "a number above 0")
        check(0 <= momentum < 1, "--momentum", momentum, "a number of at least 0 and below 1")
        good_betas = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        check(good_betas, "--betas", self.betas, "two numbers of at least 0 and below 1")
        check(_LEAST_EPS <= self.eps < inf, "--eps", self.eps, f"a number of {_LEAST_EPS:g} or more")
        check(0 <= weight_decay < inf, "--weight-decay", weight_decay, "a number of 0 or more")
        check(self.clip is None or 0 < self.clip < inf, "--clip", self.clip, "a number above 0, or leave it out")
        check(0 < self.trust < inf, "--trust", self.trust, "a number above 0")
        if self.name in ("adam", "adamw") and momentum:
            raise UserError(
                f"--momentum {momentum:g}: --optimizer {self.name} has none",
                hint="leave it out, or use --optimizer momentum or nesterov",
            )
        if self.name == "nesterov" and not momentum:
            raise UserError("--momentum 0: --optimizer nesterov needs one", hint="for example --momentum 0.9")


def check(holds: bool, option: str, given: object, wanted: str) -> None:
    """The error for a value out of range, unless it `holds`. NaN fails every comparison, so it is never in range."""
    if not holds:
        raise UserError(f"{option} {given}: out of range", hint=f"give {wanted}")
