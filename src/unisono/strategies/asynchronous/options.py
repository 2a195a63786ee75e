"""AsyncOptions: the options of asynchronous training in a recipe, checked, as masters and workers use them.

The one idea: everything that can be refused is refused here, before any process starts.

    terms = AsyncOptions.of(recipe, pushes=3750, sizes=model.layout.sizes, lr=job.lr)
    resolve(recipe)                                         # refuses other options that do not work with it

`cut` divides the flat vector of parameters into a part for each master. Parts are of equal length, but a border moves
to the nearest border between two arrays (a weight, a bias) if one is near, else to the nearest block in a large array.

>>> cut([100352, 128, 8192, 64, 640, 10], masters=2)       # mlp:128,64: the first weight alone is 92 % and is cut
[(0, 54272), (54272, 109386)]
>>> cut([4096, 4100, 10], masters=2)
[(0, 4096), (4096, 8206)]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, final

from unisono.arena.reduction_tree import BLOCK
from unisono.data.shards import ShardPlan
from unisono.errors import UserError
from unisono.files import expand_user
from unisono.models.wrappers import parse_slow
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.strategies.asynchronous import batch_assignment, recorded_order
from unisono.strategies.asynchronous.sequencer import Planned, SequencerRules, is_order_file, staleness_of
from unisono.strategies.asynchronous.staleness_rules import RULES, Rule, StalenessBound, find_rule

NEAR = 8
"""A border between arrays is near if it is within this part of a master's share."""


def cut(sizes: Sequence[int], masters: int) -> list[tuple[int, int]]:
    """[low, high) for each master. `sizes`: elements of each array. A `UserError` if there are not enough pieces."""
    ends = list(accumulate(sizes, initial=0))
    length = ends[-1]
    places = sorted({*ends, *range(0, length, BLOCK)} - {0, length})
    if len(places) < masters - 1:
        raise UserError(
            f"--masters {masters}: the model's {length:,} parameters can be cut for {len(places) + 1} masters at most",
            hint=f"use --masters {len(places) + 1} or less, or a larger model",
        )
    borders = [0]
    for number in range(1, masters):
        ideal, share = length * number / masters, length / masters
        # Enough places must be left for the masters to come, and each of them needs one beyond the last.
        free = [place for place in places if place > borders[-1]][: len(places)]
        free = free[: len(free) - (masters - 1 - number)]
        inner = [place for place in free if place in set(ends) and abs(place - ideal) <= share / NEAR]
        borders.append(min(inner or free, key=lambda place: abs(place - ideal)))
    return list(pairwise([*borders, length]))


OPTIONS = ("masters", "staleness_rule", "max_staleness", "deal", "order")
"""Options of a recipe that no other strategy has."""


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
    planned: Planned | None
    parts: Sequence[tuple[int, int]]
    """[low, high) of the parameters for each master."""
    momentum: float
    """The momentum of each worker; 0: none."""
    nesterov: bool
    clip: float
    """The largest norm of a worker's gradient; 0: none."""
    lr: Callable[[int], float]
    """lr(n): the learning rate of the n-th push of the run, from 1."""
    pushes: int
    """The pushes of an epoch."""
    push: int
    """The samples of one push."""

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
        if is_order_file(recipe.strategy.order):
            path = expand_user(recipe.strategy.order)
            terms = replace(terms, planned=recorded_order.read(path, recipe, pushes, terms.rules))
        terms._check_order()
        return terms

    @property
    def group(self) -> int:
        """How many gradients make one update."""
        return self.workers if self.rule.collects else 1

    def rules(self, epoch: int) -> SequencerRules:
        """The rules of the sequencer in an epoch (from 1)."""
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
