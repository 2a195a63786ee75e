"""The strategies of others, by name: what they decide, what they refuse, and how they are made.

The one idea: `resolve` turns a recipe into the one that such a strategy runs (torch's engine, one shard per rank,
torch's own all-reduce), and everything it cannot do is refused there, before any process starts.

    recipe = resolve(Recipe(strategy="ddp"))
    strategy = make_peer(recipe, Seat(comm, device, task, clip, epochs), model, options, rng)

Imports torch and Accelerate only where they are used.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono.errors import UserError, unknown_name
from unisono.extras import how_to_install
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.strategies.asynchronous.terms import refuse_elsewhere
from unisono.strategies.asynchronous.terms import resolve as resolve_async
from unisono.strategies.devices import BACKENDS, DEVICES, check_devices, choose_device, device_of
from unisono.strategies.rhythm import resolve_local
from unisono.strategies.wire import check_wire

if TYPE_CHECKING:
    from torch import nn

    from unisono.strategies.harness import Harness
    from unisono.strategies.torch_peer import Peer, Seat

PEERS = {"ddp": "unisono.strategies.ddp:Ddp", "accelerate": "unisono.strategies.accelerate:Accelerate"}
OURS = ("sync", "local", "async")
STRATEGIES = (*OURS, *PEERS)
PACKAGES = {"ddp": ("torch",), "accelerate": ("torch", "accelerate")}
"""That they compute with."""


def resolve(recipe: Recipe) -> Recipe:
    """The recipe as its strategy runs it; our own take it nearly as it is. A `UserError` for what cannot be."""
    name = recipe.strategy
    if name not in STRATEGIES:
        raise unknown_name("--strategy", name, STRATEGIES)
    if recipe.device not in DEVICES:
        raise unknown_name("--device", recipe.device, DEVICES)
    recipe = resolve_local(recipe)
    check_wire(recipe)
    if name == "async":
        return resolve_async(recipe)
    refuse_elsewhere(recipe)
    if name in OURS:
        if recipe.device == "cuda":
            raise UserError(
                f"--device cuda with --strategy {name}, which computes on processors alone",
                hint="use --strategy ddp or --strategy accelerate on GPUs, or leave --device out",
            )
        return recipe
    _check_packages(name)
    _check_options(recipe)
    device = choose_device(recipe.device, _gpus() if recipe.device != "cpu" else 0)
    if name == "accelerate" and recipe.precision == "fp16" and device == "cpu":
        raise UserError(
            "--precision fp16 with --strategy accelerate on CPUs: Accelerate would compute in fp32, and say nothing",
            hint="use --precision bf16, or --strategy ddp, or a GPU",
        )
    return replace(recipe, engine="torch", shards=recipe.ranks, allreduce="native", device=device)


def devices_of(recipe: Recipe, local_ranks: Sequence[int]) -> list[str]:
    """The device of each rank of a resolved recipe; none for `sync`, which has no choice."""
    return [] if recipe.strategy == "sync" else [device_of(recipe.device, local) for local in local_ranks]


def check_gpus(recipe: Recipe) -> None:
    """A `UserError` if all ranks of a resolved recipe are to run on this node, and cannot; before they are started."""
    if recipe.strategy != "sync" and recipe.device == "cuda":
        check_devices(recipe.device, recipe.ranks, _gpus())


def transport_of(recipe: Recipe, usual: str) -> str:
    """What moves the gradients of a resolved recipe; `usual`: where unisono itself does."""
    return usual if recipe.strategy in OURS else BACKENDS[recipe.device]


def warm_up(recipe: Recipe) -> None:
    """Imports what ranks of a resolved recipe need: those that are forked afterwards have it."""
    if recipe.strategy in PEERS:
        import_module("unisono.strategies.torch_peer")
        import_module(PEERS[recipe.strategy].partition(":")[0])
        import_module("torch._dynamo")  # DDP imports it, for most of a second, when it wraps a module


def make_peer(
    recipe: Recipe, seat: "Seat", model: Model, options: OptimizerOptions, rng: np.random.Generator
) -> "Peer":
    """The strategy of a resolved recipe; torch's default process group is there. Called by every rank.

    Starting values are drawn from `rng`, which is the same on every rank. To be closed before the group is destroyed.
    """
    from unisono.models.torch.model import TorchModel
    from unisono.strategies.torch_peer import Peer

    assert isinstance(model, TorchModel)
    file, _, kind = PEERS[recipe.strategy].partition(":")
    made = getattr(import_module(file), kind)

    def wrap(module: "nn.Module", unused: bool) -> "Harness":
        harness: Harness = made(module, options, seat.device, recipe.precision, unused=unused)
        return harness

    return Peer(seat, model, wrap, rng)


def _check_packages(name: str) -> None:
    for package in PACKAGES[name]:
        if find_spec(package) is None:
            raise UserError(
                f"--strategy {name} needs the package {package}, which is not installed",
                hint=how_to_install(package),
            )


def _check_options(recipe: Recipe) -> None:
    """What they cannot do; options of take-over have no effect, and their help says so."""
    name = recipe.strategy
    refusals: list[tuple[bool, str, Any, str, str]] = [
        (recipe.engine == "numpy", "--engine", "numpy", "its modules are torch's", "leave --engine out"),
        (recipe.optimizer == "lars", "--optimizer", "lars", "torch has none", "use momentum, or --strategy sync"),
        (
            recipe.shards not in (0, recipe.ranks),
            "--shards", recipe.shards, "a rank's part of a batch is one shard",
            f"give --shards {recipe.ranks}, or 0: as many as ranks",
        ),
        (
            recipe.allreduce not in ("arena", "native"),
            "--allreduce", recipe.allreduce, "torch sums the gradients itself", "leave --allreduce out",
        ),
        (recipe.sync_batchnorm, "--sync-batchnorm", "", "torch has it for GPUs, ours is sync's", "use --strategy sync"),
        (bool(recipe.slow), "--slow", recipe.slow, "its ranks compute and wait at once", "use --strategy sync"),
        (bool(recipe.snapshot_every), "--snapshot-every", recipe.snapshot_every, "it has none", "use --strategy sync"),
        (bool(recipe.resume), "--resume", recipe.resume, "it has no snapshots", "use --strategy sync"),
    ]  # fmt: skip
    for refused, option, given, why, hint in refusals:
        if refused:
            raise UserError(f"{option} {given} with --strategy {name}: {why}".replace("  ", " "), hint=hint)


def _gpus() -> int:
    import torch

    # Not is_available(): that starts CUDA, and a process that has done so cannot fork ranks.
    return torch.cuda.device_count()
