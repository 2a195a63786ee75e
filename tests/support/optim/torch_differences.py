"""Trains the same vector with torch.optim and with ours: how far apart they end, {case: difference}.

unisono.run(lambda world: run_all(), 1, start="fork")     # torch would start threads
"""

from typing import Any, TypeAlias

import numpy as np

from unisono.optim import make
from unisono.optim.gradient_norms import Scaling, Segments
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator

SHAPES = [(40, 30), (30,), (30, 11), (11,)]
STEPS = 50
LR = 0.02

Case: TypeAlias = tuple[OptimizerOptions, str, dict[str, Any]]


def case(name: str, kind: str, theirs: dict[str, Any] | None = None, **ours: Any) -> Case:
    """Ours, the class in torch.optim, its options."""
    return OptimizerOptions(name, LR, **ours), kind, theirs or {}


CASES: dict[str, Case] = {
    "sgd": case("sgd", "SGD"),
    "sgd, decay": case("sgd", "SGD", {"weight_decay": 0.1}, weight_decay=0.1),
    "sgd, clip": case("sgd", "SGD", clip=2.0),
    "momentum": case("momentum", "SGD", {"momentum": 0.9}),
    "momentum, decay, clip": case(
        "momentum", "SGD", {"momentum": 0.7, "weight_decay": 0.1}, momentum=0.7, weight_decay=0.1, clip=2.0
    ),
    "nesterov": case("nesterov", "SGD", {"momentum": 0.9, "nesterov": True}),
    "nesterov, decay, clip": case(
        "nesterov", "SGD", {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
        momentum=0.5, weight_decay=0.1, clip=2.0,
    ),
    "adam": case("adam", "Adam"),
    "adam, large eps": case("adam", "Adam", {"eps": 0.1}, eps=0.1),
    "adam, betas": case("adam", "Adam", {"betas": (0.5, 0.9)}, betas=(0.5, 0.9)),
    "adam, decay, clip": case("adam", "Adam", {"weight_decay": 0.1}, weight_decay=0.1, clip=0.5),
    "adamw": case("adamw", "AdamW"),
    "adamw, decay, clip": case("adamw", "AdamW", {"weight_decay": 0.3}, weight_decay=0.3, clip=0.5),
}  # fmt: skip


def difference(options: OptimizerOptions, kind: str, torch_options: dict[str, Any]) -> float:
    import torch  # not above: the tests import CASES

    counts = [int(np.prod(shape)) for shape in SHAPES]
    offsets = np.cumsum([0, *counts[:-1]]).tolist()
    length = sum(counts)
    params = generator(0, "init").standard_normal(length).astype(np.float32)
    theirs = [
        torch.nn.Parameter(torch.from_numpy(params[at : at + count].copy()).reshape(shape))
        for at, count, shape in zip(offsets, counts, SHAPES, strict=True)
    ]
    reference = getattr(torch.optim, kind)(theirs, lr=LR, **torch_options)
    optimizer = make(options)
    segments = Segments(list(zip(offsets, counts, strict=True)), length)
    scaling = Scaling(options, segments, [len(shape) > 1 for shape in SHAPES])
    shared = np.zeros((scaling.rows, segments.count))
    state = [np.zeros(length, np.float32) for _ in optimizer.state_names]
    for step in range(1, STEPS + 1):
        lr = LR * (1 - step / 100)
        # Gradients that depend on the step and on the place, some of them zero.
        grads = generator(0, "synthetic", step).standard_normal(length).astype(np.float32) + 0.3
        grads[::7] = 0
        scaling.publish(params, grads, 0, shared)
        optimizer.update(params, grads, state, lr, step, scaling.scale(shared, 0, length))
        for parameter, at, count in zip(theirs, offsets, counts, strict=True):
            parameter.grad = torch.from_numpy(grads[at : at + count].copy()).reshape(parameter.shape)
        if options.clip:
            torch.nn.utils.clip_grad_norm_(theirs, options.clip)
        reference.param_groups[0]["lr"] = lr
        reference.step()
    flat = np.concatenate([parameter.detach().numpy().ravel() for parameter in theirs])
    return float(np.abs(flat - params).max())


def run_all() -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    return {name: difference(*case) for name, case in CASES.items()}
