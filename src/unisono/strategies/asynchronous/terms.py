"""Terms: a recipe's options of asynchronous training, checked and made into what masters and workers go by.

The one idea: everything that can be refused is refused here, before any process starts.

    terms = Terms.of(recipe, pushes=3750, sizes=model.layout.sizes, lr=job.lr)
    resolve(recipe)                                         # what else such a recipe must, or must not, ask for
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from unisono.data.shards import Plan
from unisono.errors import UserError
from unisono.files import expand_user
from unisono.models.slowed import parse_slow
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.strategies.asynchronous import deals, orders, recordings
from unisono.strategies.asynchronous.bounds import Bound
from unisono.strategies.asynchronous.clerk import Rules, staleness_of
from unisono.strategies.asynchronous.cuts import cut
from unisono.strategies.asynchronous.rules import RULES, Rule, find

OPTIONS = ("masters", "staleness_rule", "max_staleness", "deal", "order")
"""Of the recipe, that no other strategy has."""


@final
@dataclass(frozen=True)
class Terms:
    """What decides an asynchronous run beyond model, data and seed."""

    masters: int
    workers: int
    rule: Rule
    bound: Bound | None
    deal: str
    order: str
    planned: orders.Planned | None
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
    def of(cls, recipe: Recipe, pushes: int, sizes: Sequence[int], lr: Callable[[int], float]) -> "Terms":
        """pushes: of an epoch. sizes: elements of each of the model's arrays."""
        workers, rule = recipe.ranks - recipe.masters, find(recipe.staleness_rule)
        bound = Bound.parse(recipe.max_staleness, workers, rule.bound * workers)
        chosen = _optimizer(recipe)
        terms = cls(
            recipe.masters, workers, rule, bound, recipe.deal, recipe.order, None, cut(sizes, recipe.masters),
            chosen.momentum or 0.0, chosen.name == "nesterov", chosen.clip or rule.clip, lr,
            pushes, int(recipe.batch_size),
        )  # fmt: skip
        if orders.is_file(recipe.order):
            path = expand_user(recipe.order)
            terms = replace(terms, planned=recordings.read(path, recipe, pushes, terms.rules))
        terms._check_order()
        return terms

    @property
    def group(self) -> int:
        """How many gradients make one update."""
        return self.workers if self.rule.collects else 1

    def rules(self, epoch: int) -> Rules:
        """Of the clerk in an epoch (from 1)."""
        planned = None if self.planned is None else self.planned[epoch]
        return Rules(self.workers, self.order, planned, self.bound, self.group)

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


def plan_epoch(recipe: Recipe, samples: int) -> Plan:
    """An epoch as one batch, whose shards are the pushes: --batch-size samples each, the last one fewer."""
    size = min(int(recipe.batch_size), samples)
    pushes = max(1, samples // size if recipe.drop_last else -(-samples // size))
    workers = recipe.ranks - recipe.masters
    if pushes < workers:
        raise UserError(
            f"{samples} samples in pushes of {size} are {pushes} an epoch: {workers} workers would not all have one",
            hint="use a smaller --batch-size, or fewer ranks",
        )
    return Plan(samples, pushes * size, pushes, recipe.seed, recipe.drop_last)


def masters_optimizer(options: OptimizerOptions) -> OptimizerOptions:
    """What masters apply: momentum is the workers', and so is clipping."""
    if options.name in ("momentum", "nesterov"):
        options = replace(options, name="sgd", momentum=0.0)
    return replace(options, clip=None)


def _optimizer(recipe: Recipe) -> OptimizerOptions:
    momentum = None if recipe.momentum < 0 else recipe.momentum
    return OptimizerOptions(recipe.optimizer, recipe.lr, momentum=momentum, clip=recipe.clip or None)


def resolve(recipe: Recipe) -> Recipe:
    """The recipe, if it can be run asynchronously. A `UserError` otherwise."""
    find(recipe.staleness_rule)
    deals.check(recipe.deal)
    if not 1 <= recipe.masters < recipe.ranks:
        raise UserError(
            f"--masters {recipe.masters} with --ranks {recipe.ranks}, which counts masters and workers",
            hint=f"give 1 to {recipe.ranks - 1} masters" if recipe.ranks > 1 else "give --ranks 2 or more",
        )
    slow = [rank for rank in parse_slow(recipe.slow, recipe.ranks) if rank < recipe.masters]
    refusals: list[tuple[bool, str, Any, str, str]] = [
        (
            bool(slow), "--slow", recipe.slow, f"rank {min(slow, default=0)} is a master, which computes no gradients",
            f"give workers: ranks {recipe.masters} to {recipe.ranks - 1}",
        ),
        (recipe.device == "cuda", "--device", "cuda", "it computes on processors alone", "leave --device out"),
        (recipe.optimizer == "lars", "--optimizer", "lars", "masters see parts of layers", "use momentum or adam"),
        (
            bool(recipe.batch_size_per_rank), "--batch-size-per-rank", recipe.batch_size_per_rank,
            "--batch-size is one push of one worker", f"give --batch-size {recipe.batch_size_per_rank}",
        ),
        (
            isinstance(recipe.batch_size, str), "--batch-size", recipe.batch_size,
            "an epoch would be a single push", "give the samples of one push",
        ),
        (
            recipe.allreduce != "arena", "--allreduce", recipe.allreduce,
            "gradients are pushed, not summed", "leave --allreduce out",
        ),
        (recipe.sync_batchnorm, "--sync-batchnorm", "", "pushes do not meet", "use --strategy sync"),
        (
            recipe.snapshot_every.rstrip("s").endswith("step"), "--snapshot-every", recipe.snapshot_every,
            "snapshots are made between epochs", "give epochs or seconds",
        ),
    ]  # fmt: skip
    for refused, name, given, why, hint in refusals:
        if refused:
            raise UserError(f"{name} {given} with --strategy async: {why}".replace("  ", " "), hint=hint)
    return replace(recipe, shards=0)  # a push is computed as a whole
