"""SyncSchedule: when the replicas of `local` meet, and how many samples each has seen by then. Pure arithmetic.

The one idea: it is a function of the run's numbers alone, so whoever joins later knows it. Replicas meet after every
`every` steps of an epoch, and after its last step, whatever the number: between two epochs they are one. Until the end
of epoch `after` they meet after every step (post-local SGD).

>>> sync_schedule = SyncSchedule(ShardPlan(samples=50, batch=8, shards=4, seed=0), every=3)
>>> [sync_schedule.due(1, step) for step in range(7)], sync_schedule.meetings(1)
([False, False, True, False, False, True, True], 3)
>>> sync_schedule.span(1, 4), [sync_schedule.seen(range(6, 7), replica) for replica in range(4)]
(range(3, 6), [2, 0, 0, 0])
"""

from dataclasses import dataclass
from typing import final

from unisono.data.shards import ShardPlan
from unisono.errors import UserError
from unisono.recipe import Recipe

DEFAULT_EVERY = 16


@final
@dataclass(frozen=True)
class SyncSchedule:
    """Epochs count from 1, steps of an epoch from 0."""

    plan: ShardPlan
    every: int
    after: int = 0

    def due(self, epoch: int, step: int) -> bool:
        """Whether replicas meet after this step."""
        return step + 1 == self.span(epoch, step).stop

    def span(self, epoch: int, step: int) -> range:
        """The steps of the epoch, `step` among them, that replicas walk alone before they meet."""
        every = self.every if epoch > self.after else 1
        start = step - step % every
        return range(start, min(start + every, self.plan.steps_per_epoch))

    def meetings(self, epoch: int) -> int:
        """How often replicas meet in an epoch."""
        return -(-self.plan.steps_per_epoch // (self.every if epoch > self.after else 1))

    def live(self, span: range) -> int:
        """How many replicas have any samples in these steps: the first so many."""
        return self.plan.live(span.start)  # no later batch is larger

    def seen(self, span: range, replica: int) -> int:
        """How many samples a replica has in these steps."""
        return sum(self.plan.shard_samples(step, replica) for step in span)


def resolve_local(recipe: Recipe) -> Recipe:
    """A recipe of `local` with `--sync-every` as a number; a `UserError` for what cannot be."""
    every = recipe.strategy.sync_every
    if every == "":
        every = DEFAULT_EVERY
    if isinstance(every, str) or every < 1:
        raise UserError(
            f"--sync-every {every}: not a number of steps", hint="give 1 or more, for example --sync-every 16"
        )
    if not 0 <= recipe.strategy.local_after < recipe.learning.epochs:
        raise UserError(
            f"--local-after {recipe.strategy.local_after} in a run of {recipe.learning.epochs} epochs",
            hint="give 0 or more and less than --epochs, or use --strategy sync",
        )
    return recipe.with_options(sync_every=every)
