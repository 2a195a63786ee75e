"""StrategySpec: everything that the rest of unisono asks of a strategy by name: options, support, sizes, making.

The one idea: code outside `strategies/` never compares a strategy's name; it asks the spec of a recipe
(`registry.of(recipe)`), and a new strategy is one more spec in the registry's table.

    spec = registry.of(recipe); spec.supports.gpus; spec.asynchronous
    with spec.connect(job, comm, model) as strategy: ...            # over a communicator, on every rank

`SupervisedSpec`: a strategy whose ranks `unisono train` starts under a supervisor. The run
(`runs/supervised_training.py`) makes the arena, forks ranks and watches them, and knows no strategy; where strategies
differ, it calls a hook. The process that forks the ranks makes the hooks, and the ranks inherit them. `ArenaSpec`: such
a strategy whose rounds are those of the arena, for any launcher.

    hooks = spec.supervise(job, model, shared)                      # in the process that supervises ranks
    with hooks.running(): ...                                       # around all ranks
    strategy = hooks.strategy(member, model, on_snapshot_copy, remote, report)    # in a rank
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import View
from unisono.comm.base import Communicator
from unisono.data.shards import ShardPlan
from unisono.errors import UserError
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.rng import generator
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart
from unisono.strategies.arena.state import ArenaExtent, ArenaState
from unisono.strategies.base import Strategy
from unisono.strategies.local.sync_schedule import SyncSchedule
from unisono.strategies.machines.mailbox import RemoteView
from unisono.strategies.wire_type import wire_type

if TYPE_CHECKING:
    import torch

    from unisono.models.torch.learning_task import Task


class JobView(Protocol):
    """What a strategy needs to know of a job; see `training/job.py`."""

    @property
    def recipe(self) -> Recipe: ...
    @property
    def plan(self) -> ShardPlan: ...
    @property
    def optimizer(self) -> OptimizerOptions: ...
    @property
    def task(self) -> "Task": ...
    @property
    def blocks(self) -> int:
        """How many blocks of samples an evaluation measures, at most."""

    @property
    def snapshots(self) -> object:
        """True if the run makes snapshots."""

    @property
    def updates(self) -> int: ...
    def model(self) -> Model: ...
    def model_of(self, rank: int) -> Model: ...
    def lr(self, step: int) -> float: ...
    def torch_group(self, comm: Communicator) -> AbstractContextManager["torch.device"]: ...


def _row(label: str) -> Any:
    """A field of `Supports` that is a row of the table in docs/limits.md."""
    return field(metadata={"label": label})


@final
@dataclass(frozen=True, kw_only=True)
class Supports:
    """What works with a strategy. The table in docs/limits.md has a row for each field; none has a default."""

    any_ranks: bool = _row("same bits on any number of ranks")
    same_ranks: str = _row("same bits again on the same ranks")
    shared_memory: bool = _row("parameters in shared memory: `unisono train`, one machine")
    shared_memory_launched: bool = _row("parameters in shared memory of each machine: mpirun, torchrun, srun")
    take_over: bool = _row("other ranks take over from one that dies: `unisono train`")
    replacement: bool = _row("a rank that died is replaced: `unisono train`")
    machines_by_hand: bool = _row("several machines: `--num-nodes`")
    machines_launched: bool = _row("several machines: mpirun, torchrun, srun")
    snapshots: bool = _row("snapshots and `--resume`: `unisono train`, one machine")
    snapshots_launched: bool = _row("snapshots and `--resume`: mpirun, torchrun, srun, one machine")
    snapshots_machines: bool = _row("snapshots and `--resume`: several machines")
    numpy: bool = _row("`--engine numpy`")
    torch: bool = _row("`--engine torch`")
    gpus: bool = _row("GPUs")
    sync_batchnorm: bool = _row("`--sync-batchnorm`, one machine")
    wire: bool = _row("`--wire bf16`")
    lars: bool = _row("`--optimizer lars`")
    slow: bool = _row("`--slow`")
    profile: bool = _row("`unisono profile`")
    tune: bool = _row("`unisono tune`")
    scale: bool = _row("`unisono scale`")
    predict: bool = _row("`unisono predict`")


class StrategySpec(ABC):
    """One strategy. Attributes without a value are declared by each."""

    name: ClassVar[str]
    """As --strategy names it."""
    title: ClassVar[str]
    """As docs/limits.md names it."""
    supports: ClassVar[Supports]
    asynchronous: ClassVar[bool]
    """Whether ranks never wait for each other: an epoch is one round, and a push of a worker an update."""
    external: ClassVar[bool]
    """Whether another library trains; then devices and transport are its own."""
    recipe_shards: ClassVar[bool]
    """Whether the recipe, not the number of ranks, decides the number of shards."""
    shards_are_replicas: ClassVar[bool]
    """Whether each shard has parameters and an optimizer's state of its own between two averages."""
    options: ClassVar[Sequence[str]] = ()
    """Options of the recipe that belong to this strategy alone."""
    elsewhere: ClassVar[tuple[str, str]] = ("", "")
    """Why other strategies refuse these options, and the hint; `{option}` stands for the option."""
    packages: ClassVar[Sequence[str]] = ()
    """Optional packages that it computes with."""
    on_arena: ClassVar[bool] = False
    """Whether ranks that `unisono train` starts share an arena, under a supervisor; see `SupervisedSpec`."""

    def chosen_by(self, recipe: Recipe) -> str:
        """The option that chose this strategy, for messages."""
        return f"--strategy {recipe.strategy.name}"

    def resolve(self, recipe: Recipe) -> Recipe:
        """The recipe as this strategy runs it. A `UserError` for what it cannot do."""
        if recipe.strategy.device == "cuda":
            raise UserError(
                f"--device cuda with --strategy {self.name}, which computes on processors alone",
                hint="use --strategy ddp or --strategy accelerate on GPUs, or leave --device out",
            )
        return recipe

    def check(self, job: JobView) -> None:  # noqa: B027  (most refuse everything in `resolve`)
        """A `UserError` for what does not fit data and network."""

    # How an epoch is cut, and what is updated.

    def plan_epoch(self, recipe: Recipe, plan: ShardPlan) -> ShardPlan:
        """The plan of an epoch. plan: of synchronous steps."""
        return plan

    def optimizer(self, options: OptimizerOptions) -> OptimizerOptions:
        """What of the recipe's optimizer is applied to the parameters that snapshots hold."""
        return options

    def shared_optimizer(self, options: OptimizerOptions) -> OptimizerOptions:
        """What updates the copy of the parameters that all ranks share. options: those of `optimizer`."""
        return options

    def updates(self, plan: ShardPlan) -> int:
        """How often the parameters are updated in an epoch."""
        return plan.steps_per_epoch

    def batch_samples(self, plan: ShardPlan) -> int:
        """Samples between two updates."""
        return plan.global_batch

    def masters(self, recipe: Recipe) -> int:
        """How many of the first ranks compute no gradients."""
        return 0

    def sync_schedule(self, recipe: Recipe, plan: ShardPlan) -> SyncSchedule | None:
        """When replicas are averaged; None if there are none."""
        return None

    def extent(self, job: JobView, *, undo: bool = False, spare: bool = False) -> ArenaExtent:
        """How much memory the ranks of one machine share."""
        recipe, plan = job.recipe, job.plan
        lives = tuple({plan.live(0), plan.live(plan.steps_per_epoch - 1)})
        width = job.model().exchange_width if recipe.model.sync_batchnorm else 0
        states = self.replica_vectors(job)
        return ArenaExtent(
            recipe.ranks.count, plan.shards, lives, plan.steps_per_epoch, recipe.learning.epochs, job.blocks, undo,
            spare, width,
            states,
        )  # fmt: skip

    def replica_vectors(self, job: JobView) -> int:
        """Vectors of state that each shard keeps for itself."""
        return 0

    def state_in_parts(self, machines: int) -> bool:
        """Whether no rank, and no machine, has all that a snapshot needs."""
        return self.shards_are_replicas and (machines > 1 or not self.on_arena)

    # Where it runs.

    def devices(self, recipe: Recipe, local_ranks: Sequence[int]) -> list[str]:
        """The device of each rank of a resolved recipe; none where there is no choice."""
        return []

    def check_devices(self, recipe: Recipe) -> None:  # noqa: B027  (processors are there)
        """A `UserError` if all ranks of a resolved recipe are to run on this machine, and cannot."""

    def transport(self, recipe: Recipe, usual: str) -> str:
        """What moves the gradients of a resolved recipe; `usual`: where unisono itself does."""
        return usual

    def warm_up(self) -> None:  # noqa: B027  (most import nothing heavy)
        """Imports what ranks need: those that are forked afterwards have it."""

    def notes(self, recipe: Recipe, machines: int) -> list[str]:
        """What a user should know before a run of a resolved recipe on so many machines."""
        return []

    # How it is made.

    @abstractmethod
    def connect(
        self, job: JobView, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> AbstractContextManager[Strategy]:
        """This rank's side, over a communicator. Called by every rank of `comm`."""


class SupervisedHooks(ABC):
    """What a strategy does in a supervised run beyond the arena; the defaults suit ranks that wait in every round."""

    pieces: float = 1.0
    """How many pieces of work a rank does in a round."""
    crashes_counted: bool = True
    """Whether a round that ended many ranks is given up."""

    def __init__(self, shared: ArenaState) -> None:
        self._shared = shared

    @abstractmethod
    def strategy(
        self,
        member: Member,
        model: Model,
        on_snapshot_copy: Callable[[int], None],
        remote: RemoteView,
        report: Callable[[Any], None],
    ) -> Strategy:
        """The strategy of a rank. on_snapshot_copy(position): there is a spare copy of what that round left."""

    def running(self) -> AbstractContextManager[None]:
        """Around the life of all ranks."""
        return nullcontext()

    def resume(self, epoch: int, step: int) -> None:  # noqa: B027  (the arena has it all)
        """Before the first rank: the run goes on after that step of a snapshot; epochs count from 1, steps from 0."""

    def restore(self, view: View) -> None:
        """After the death of a rank: takes back what was begun of a round that is to be done again."""
        self._shared.restore(view)

    def whole(self, position: int, epoch: int, step: int) -> int:
        """When no rank is left: the last round that is done as a whole. position: which they ended after, that step."""
        return position


class SupervisedSpec(StrategySpec, ABC):
    """A strategy whose ranks share an arena under a supervisor."""

    on_arena = True

    @abstractmethod
    def supervise(self, job: JobView, model: Model, shared: ArenaState) -> SupervisedHooks:
        """What a supervised run on the arena `shared` does for this strategy."""


class ArenaSpec(SupervisedSpec, ABC):
    """A strategy whose rounds are those of the arena, also where another launcher starts the ranks."""

    @contextmanager
    def connect(
        self, job: JobView, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> Iterator[Strategy]:
        extent = replace(self.extent(job, spare=bool(job.snapshots)), size=comm.size)
        start = replace(start, wire=wire_type(job.recipe.strategy.wire))
        rng = generator(job.recipe.learning.seed, "init")
        with self.join(job, comm, model, extent, rng, start) as strategy:
            yield strategy

    @abstractmethod
    def join(
        self,
        job: JobView,
        comm: Communicator,
        model: Model,
        extent: ArenaExtent,
        rng: np.random.Generator,
        start: ArenaStart,
    ) -> AbstractContextManager[Strategy]:
        """This rank's side of an arena per machine, called by every rank of `comm`; see `join_arena`."""
