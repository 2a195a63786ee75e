"""AsyncOptions: a recipe's options of asynchronous training, checked and made into what masters and workers go by.

The one idea: everything that can be refused is refused here, before any process starts.

    terms = AsyncOptions.of(recipe, pushes=3750, sizes=model.layout.sizes, lr=job.lr)
    resolve(recipe)                                         # what else such a recipe must, or must not, ask for
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from unisono.data.shards import ShardPlan
from unisono.errors import UserError
from unisono.files import expand_user
from unisono.models.slowed import parse_slow
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.strategies.asynchronous import batch_assignment, push_order, recordings
from unisono.strategies.asynchronous.partition import cut
from unisono.strategies.asynchronous.sequencer import SequencerRules, staleness_of
from unisono.strategies.asynchronous.staleness_rules import RULES, Rule, StalenessBound, find_rule

OPTIONS = ("masters", "staleness_rule", "max_staleness", "deal", "order")
"""Of the recipe, that no other strategy has."""


@final
@dataclass(frozen=True)
class AsyncOptions:
    """What decides an asynchronous run beyond model, data and seed."""

    masters: int
    workers: int
    rule: Rule
    bound: StalenessBound | None
    deal: str
    order: str
    planned: push_order.Planned | None
    parts: Sequence[tuple[int, int]]
    """[low, high) of the parameters for each master."""
    momentum: float
    """Of each worker; 0: none."""
    nesterov: bool
    clip: float
    """The largest norm of a worker's gradient; 0: none."""
    lr: Callable[[int], float]
    """lr(n): the learning rate of the n-th push of the run, from 1."""
    pushes: int
    """Of an epoch."""
    push: int
    """Samples of one."""

    @classmethod
    def of(cls, recipe: Recipe, pushes: int, sizes: Sequence[int], lr: Callable[[int], float]) -> "AsyncOptions":
        """pushes: of an epoch. sizes: elements of each of the model's arrays."""
        workers, rule = recipe.ranks.count - recipe.strategy.masters, find_rule(recipe.strategy.staleness_rule)
        bound = StalenessBound.parse(recipe.strategy.max_staleness, workers, rule.bound * workers)
        chosen = _optimizer(recipe)
        terms = cls(
            recipe.strategy.masters, workers, rule, bound, recipe.strategy.deal, recipe.strategy.order, None,
            cut(sizes, recipe.strategy.masters),
            chosen.momentum or 0.0, chosen.name == "nesterov", chosen.clip or rule.clip, lr,
            pushes, int(recipe.learning.batch_size),
        )  # fmt: skip
        if push_order.is_file(recipe.strategy.order):
            path = expand_user(recipe.strategy.order)
            terms = replace(terms, planned=recordings.read(path, recipe, pushes, terms.rules))
        terms._check_order()
        return terms

    @property
    def group(self) -> int:
        """How many gradients make one update."""
        return self.workers if self.rule.collects else 1

    def rules(self, epoch: int) -> SequencerRules:
        """Of the sequencer in an epoch (from 1)."""
        planned = None if self.planned is None else self.planned[epoch]
        return SequencerRules(self.workers, self.order, planned, self.bound, self.group)

    def cure(self, staleness: int) -> str:
        """What to try when a run diverges, with gradients this late."""
        late = f"its parameters had a staleness of {staleness} updates, with {self.workers} workers"
        if self.rule in (RULES["safe"], RULES["softsync"]):
            return f"{late}: lower --lr, or use --clip 1"
        return f"{late}: use --staleness-rule safe or softsync, or lower --lr"

    def _check_order(self) -> None:
        if self.planned is None or self.bound is None or self.bound.drop:
            return
        for epoch, entries in self.planned.items():
            found = max(staleness_of(entries, self.rules(epoch)), default=0)
            if found > self.bound.most:
                raise UserError(
                    f"--order {self.order} has a push of staleness {found} in epoch {epoch}, and at most "
                    f"{self.bound.most} are allowed",
                    hint=f"give --max-staleness {found}, or {self.bound.most}:drop",
                )


def plan_epoch(recipe: Recipe, samples: int) -> ShardPlan:
    """An epoch as one batch, whose shards are the pushes: --batch-size samples each, the last one fewer."""
    size = min(int(recipe.learning.batch_size), samples)
    pushes = max(1, samples // size if recipe.learning.drop_last else -(-samples // size))
    workers = recipe.ranks.count - recipe.strategy.masters
    if pushes < workers:
        raise UserError(
            f"{samples} samples in pushes of {size} are {pushes} an epoch: {workers} workers would not all have one",
            hint="use a smaller --batch-size, or fewer ranks",
        )
    return ShardPlan(samples, pushes * size, pushes, recipe.learning.seed, recipe.learning.drop_last)


def masters_optimizer(options: OptimizerOptions) -> OptimizerOptions:
    """What masters apply: momentum is the workers', and so is clipping."""
    if options.name in ("momentum", "nesterov"):
        options = replace(options, name="sgd", momentum=0.0)
    return replace(options, clip=None)


def _optimizer(recipe: Recipe) -> OptimizerOptions:
    momentum = None if recipe.learning.momentum < 0 else recipe.learning.momentum
    return OptimizerOptions(
        recipe.learning.optimizer, recipe.learning.lr, momentum=momentum, clip=recipe.learning.clip or None
    )


def resolve(recipe: Recipe) -> Recipe:
    """The recipe, if it can be run asynchronously. A `UserError` otherwise."""
    find_rule(recipe.strategy.staleness_rule)
    batch_assignment.check(recipe.strategy.deal)
    if not 1 <= recipe.strategy.masters < recipe.ranks.count:
        raise UserError(
            f"--masters {recipe.strategy.masters} with --ranks {recipe.ranks.count}, which counts masters and workers",
            hint=f"give 1 to {recipe.ranks.count - 1} masters" if recipe.ranks.count > 1 else "give --ranks 2 or more",
        )
    slow = [rank for rank in parse_slow(recipe.faults.slow, recipe.ranks.count) if rank < recipe.strategy.masters]
    refusals: list[tuple[bool, str, Any, str, str]] = [
        (
            bool(slow), "--slow", recipe.faults.slow,
            f"rank {min(slow, default=0)} is a master, which computes no gradients",
            f"give workers: ranks {recipe.strategy.masters} to {recipe.ranks.count - 1}",
        ),
        (recipe.strategy.device == "cuda", "--device", "cuda", "it computes on processors alone", "leave --device out"),
        (recipe.learning.optimizer == "lars", "--optimizer", "lars", "masters see parts of layers",
         "use momentum or adam"),
        (
            bool(recipe.learning.batch_size_per_rank), "--batch-size-per-rank", recipe.learning.batch_size_per_rank,
            "--batch-size is one push of one worker", f"give --batch-size {recipe.learning.batch_size_per_rank}",
        ),
        (
            isinstance(recipe.learning.batch_size, str), "--batch-size", recipe.learning.batch_size,
            "an epoch would be a single push", "give the samples of one push",
        ),
        (
            recipe.strategy.allreduce != "arena", "--allreduce", recipe.strategy.allreduce,
            "gradients are pushed, not summed", "leave --allreduce out",
        ),
        (recipe.model.sync_batchnorm, "--sync-batchnorm", "", "pushes do not meet", "use --strategy sync"),
        (
            recipe.faults.snapshot_every.rstrip("s").endswith("step"), "--snapshot-every", recipe.faults.snapshot_every,
            "snapshots are made between epochs", "give epochs or seconds",
        ),
    ]  # fmt: skip
    for refused, name, given, why, hint in refusals:
        if refused:
            raise UserError(f"{name} {given} with --strategy async: {why}".replace("  ", " "), hint=hint)
    return recipe.with_options(shards=0)  # a push is computed as a whole
