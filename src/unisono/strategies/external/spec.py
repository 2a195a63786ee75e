"""Specs of `ddp` and `accelerate`: strategies of other libraries, to compare with.

The one idea: `resolve` turns a recipe into the one that such a strategy runs (torch's engine, one shard per rank,
torch's own all-reduce), and everything it cannot do is refused there, before any process starts.

    recipe = registry.resolve(Recipe.from_options(strategy="ddp"))
    strategy = make_external(wrapper, ExternalContext(comm, device, task, clip, epochs), model, options, precision, rng)

Imports torch and Accelerate only where they are used.
"""

from abc import ABC
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from unisono.comm.base import Communicator
from unisono.errors import UserError
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.optional_packages import how_to_install
from unisono.recipe import Recipe
from unisono.rng import generator
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart
from unisono.strategies.base import Strategy
from unisono.strategies.external.device_assignment import BACKENDS, check_devices, choose_device, device_of
from unisono.strategies.spec import JobView, StrategySpec, Supports

if TYPE_CHECKING:
    from torch import nn

    from unisono.strategies.external.external_step import ExternalContext, ExternalStep
    from unisono.strategies.external.module_wrapper import ModuleWrapper

SUPPORTS = Supports(
    any_ranks=False, same_ranks="on processors", shared_memory=False, shared_memory_launched=False, take_over=False,
    replacement=False, machines_by_hand=False, machines_launched=True, snapshots=False, snapshots_launched=False,
    snapshots_machines=False, numpy=False, torch=True, gpus=True, sync_batchnorm=False, wire=False, lars=False,
    slow=False, profile=False, tune=False, scale=True, predict=False,
)  # fmt: skip


class ExternalSpec(StrategySpec, ABC):
    """torch sums the gradients, inside a wrapper around the module."""

    asynchronous, external, recipe_shards, shards_are_replicas = False, True, False, False
    supports = SUPPORTS
    wrapper: ClassVar[str]
    """module:Class of the `ModuleWrapper`."""

    def resolve(self, recipe: Recipe) -> Recipe:
        self._check_packages()
        _check_options(recipe)
        device = choose_device(recipe.strategy.device, _gpus() if recipe.strategy.device != "cpu" else 0)
        self.check_precision(recipe, device)
        return recipe.with_options(engine="torch", shards=recipe.ranks.count, allreduce="native", device=device)

    def check_precision(self, recipe: Recipe, device: str) -> None:
        """A `UserError` for a precision that the library does not compute in on this device."""

    def devices(self, recipe: Recipe, local_ranks: Sequence[int]) -> list[str]:
        return [device_of(recipe.strategy.device, local) for local in local_ranks]

    def check_devices(self, recipe: Recipe) -> None:
        if recipe.strategy.device == "cuda":
            check_devices(recipe.strategy.device, recipe.ranks.count, _gpus())

    def transport(self, recipe: Recipe, usual: str) -> str:
        return BACKENDS[recipe.strategy.device]

    def warm_up(self) -> None:
        import_module("unisono.strategies.external.external_step")
        import_module(self.wrapper.partition(":")[0])
        import_module("torch._dynamo")  # DDP imports it, for most of a second, when it wraps a module

    @contextmanager
    def connect(
        self, job: JobView, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> Iterator[Strategy]:
        from unisono.strategies.external.external_step import ExternalContext

        recipe, rng = job.recipe, generator(job.recipe.learning.seed, "init")
        with job.torch_group(comm) as device:
            context = ExternalContext(comm, device, job.task, job.optimizer.clip, recipe.learning.epochs)
            made = make_external(self.wrapper, context, model, job.optimizer, recipe.model.precision, rng)
            with closing(made) as strategy:
                yield strategy

    def _check_packages(self) -> None:
        for package in self.packages:
            if find_spec(package) is None:
                raise UserError(
                    f"--strategy {self.name} needs the package {package}, which is not installed",
                    hint=how_to_install(package),
                )


@final
class DdpSpec(ExternalSpec):
    """torch's DistributedDataParallel."""

    name = "ddp"
    title = "`ddp`"
    packages = ("torch",)
    wrapper = "unisono.strategies.external.ddp:Ddp"


@final
class AccelerateSpec(ExternalSpec):
    """Hugging Face Accelerate."""

    name = "accelerate"
    title = "`accelerate`"
    packages = ("torch", "accelerate")
    wrapper = "unisono.strategies.external.accelerate:Accelerate"

    def check_precision(self, recipe: Recipe, device: str) -> None:
        if recipe.model.precision == "fp16" and device == "cpu":
            raise UserError(
                "--precision fp16 with --strategy accelerate on CPUs: Accelerate would compute in fp32, and say "
                "nothing",
                hint="use --precision bf16, or --strategy ddp, or a GPU",
            )


def make_external(
    wrapper: str,
    context: "ExternalContext",
    model: Model,
    options: OptimizerOptions,
    precision: str,
    rng: np.random.Generator,
) -> "ExternalStep":
    """This rank's side of a strategy whose wrapper is "module:Class"; torch's default process group is there.

    Called by every rank. Starting values are drawn from `rng`, which is the same on every rank. To be closed before the
    group is destroyed.
    """
    from unisono.models.torch.model import TorchModel
    from unisono.strategies.external.external_step import ExternalStep

    assert isinstance(model, TorchModel)
    file, _, kind = wrapper.partition(":")
    made = getattr(import_module(file), kind)

    def wrap(module: "nn.Module", unused: bool) -> "ModuleWrapper":
        wrapped: ModuleWrapper = made(module, options, context.device, precision, unused=unused)
        return wrapped

    return ExternalStep(context, model, wrap, rng)


def _check_options(recipe: Recipe) -> None:
    """Refuses what they cannot do; options of take-over have no effect, and their help says so."""
    refusals: list[tuple[bool, str, Any, str, str]] = [
        (recipe.model.engine == "numpy", "--engine", "numpy", "its modules are torch's", "leave --engine out"),
        (recipe.learning.optimizer == "lars", "--optimizer", "lars", "torch has none",
         "use momentum, or --strategy sync"),
        (
            recipe.ranks.shards not in (0, recipe.ranks.count),
            "--shards", recipe.ranks.shards, "a rank's part of a batch is one shard",
            f"give --shards {recipe.ranks.count}, or 0: as many as ranks",
        ),
        (
            recipe.strategy.allreduce not in ("arena", "native"),
            "--allreduce", recipe.strategy.allreduce, "torch sums the gradients itself", "leave --allreduce out",
        ),
        (recipe.model.sync_batchnorm, "--sync-batchnorm", "", "torch has it for GPUs, ours is sync's",
         "use --strategy sync"),
        (bool(recipe.faults.slow), "--slow", recipe.faults.slow, "its ranks compute and wait at once",
         "use --strategy sync"),
        (bool(recipe.faults.snapshot_every), "--snapshot-every", recipe.faults.snapshot_every, "it has none",
         "use --strategy sync"),
        (bool(recipe.faults.resume), "--resume", recipe.faults.resume, "it has no snapshots", "use --strategy sync"),
    ]  # fmt: skip
    for refused, option, given, why, hint in refusals:
        if refused:
            raise UserError(
                f"{option} {given} with --strategy {recipe.strategy.name}: {why}".replace("  ", " "), hint=hint
            )


def _gpus() -> int:
    import torch

    # Not is_available(): that starts CUDA, and a process that has done so cannot fork ranks.
    return torch.cuda.device_count()
