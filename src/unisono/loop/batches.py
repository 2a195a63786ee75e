"""Batches and Epochs: the inner and the outer loop of the user's own training code.

    for epoch in world.epochs(5):
        for batch in world.batches(dataset, batch_size=256):
            for x, y in batch:                                 # this rank's shards
                world.backward(F.cross_entropy(model(x), y))
            optimizer.step()

The one idea: going through a batch is the gradient half of a round. It ends when the gradient of every shard exists, on
whichever rank. If a rank is lost meanwhile, its shards are assigned to the others, and the loop goes on with those that
are not finished. So the body may see a shard twice; the code after it runs once.

Shuffling, and random numbers drawn while a shard is computed, are keyed by (seed, epoch, step, shard), never by rank;
numbers drawn after the inner loop are the same on all ranks. Epochs are counted from loop to loop: going through the
same `Batches` again, or through new ones, continues with the next epoch. `Epochs` is `range(5)` without the epochs that
a snapshot of `unisono.keep` holds completely; the epoch that continues skips its batches that are done.

Limits: generators other than torch's, NumPy's legacy one and Python's (a user's `torch.Generator`) draw by rank.
"""

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import torch

from unisono.arena.membership.member import MembershipChanged
from unisono.data.shards import ShardPlan
from unisono.errors import UserError
from unisono.loop.callbacks import LEFT, PASSED
from unisono.loop.checks import weight_of
from unisono.loop.samples import Samples, Wanted, seed_all
from unisono.loop.shared_model import WEIGHT, ModelSharing
from unisono.models.torch.checks import explained
from unisono.rng import generator
from unisono.strategies.arena.shard_sums import unfinished
from unisono.strategies.arena.state import LOSS


@final
class Batches:
    """All batches of some epochs. `stream` hands this rank's shards out in order, made ahead where workers do it."""

    def __init__(self, sharing: ModelSharing, samples: Samples, plan: ShardPlan, epochs: int, shuffle: bool) -> None:
        self._sharing, self._samples, self._plan = sharing, samples, plan
        self._epochs, self._shuffle = epochs, shuffle
        seed = plan.seed % 2**63
        self.terms = plan.samples, plan.global_batch, plan.shards, seed, int(shuffle), samples.digest()
        """What ranks must have alike: see `RankConsistency`."""
        self._orders: dict[int, np.ndarray] = {}
        self._stream: Iterator[Any] | None = None
        self._view = 0
        self._end = epochs

    def __len__(self) -> int:
        return self._epochs * self._plan.steps_per_epoch

    def __iter__(self) -> Iterator["Batch"]:
        sharing = self._sharing
        sharing.optimizer.check_stepped()
        sharing.guard.check_module()
        sharing.callbacks.begin_loop()
        first = sharing.epochs
        self._stream, self._end = None, first + self._epochs
        for epoch in range(first, self._end):
            for step in range(self._plan.steps_per_epoch):
                status = sharing.callbacks.batch_status((*self.terms, int(self._plan.drop_last)), epoch, step)
                if status == LEFT:
                    return
                if status == PASSED:
                    sharing.begin_epoch(epoch)
                    continue
                sharing.callbacks.before_batch()
                batch = Batch(self, sharing, self._plan, epoch, step)
                yield batch
                if not batch.ready:
                    raise UserError(
                        f"batch {step} of epoch {epoch} was left before all of its shards were gone through",
                        hint="go through the whole batch: for x, y in batch; to end early, leave the outer loop",
                    )
                sharing.optimizer.check_stepped()

    def order(self, epoch: int) -> np.ndarray | None:
        """The samples in the order of this epoch; None: as they are."""
        if not self._shuffle:
            return None
        if epoch not in self._orders:
            self._orders = {epoch: self._plan.order(epoch)}
        return self._orders[epoch]

    def forget(self) -> None:
        """The membership changed: this rank's shards are others. From which step on is not known yet: the one that it
        changed in may be done."""
        self._stream = None

    def next_shard(self, epoch: int, step: int, missing: Sequence[int]) -> Any:
        """missing: this rank's shards of the step that are not done."""
        # It may have changed in the step before, when no shard was dealt.
        if self._stream is None or self._view != self._sharing.member.view.number:
            self._stream = self._samples.shards(self._wanted(epoch, step, missing))
            self._view = self._sharing.member.view.number
        return next(self._stream)

    def _wanted(self, epoch: int, step: int, shards: Sequence[int]) -> Iterator[Wanted]:
        plan, member, assignment = self._plan, self._sharing.member, self._sharing.update_step.assignment
        members = member.view.members
        while True:
            for shard in shards:
                yield (plan.seed, epoch, step, shard), plan.shard_indices(self.order(epoch), step, shard)
            epoch, step = (epoch, step + 1) if step + 1 < plan.steps_per_epoch else (epoch + 1, 0)
            if epoch == self._end:
                return
            shards = assignment.share(plan.live(step), members, member.slot)


@final
class Batch:
    """One global batch. Go through it once, then call `optimizer.step()`."""

    def __init__(self, batches: Batches, sharing: ModelSharing, plan: ShardPlan, epoch: int, step: int) -> None:
        self.epoch, self.step = epoch, step
        self.samples = plan.batch_samples(step)
        """Of all ranks together."""
        self.live = plan.live(step)
        self.last = step + 1 == plan.steps_per_epoch
        """Whether it is the last one of its epoch."""
        self.ready = False
        self._batches, self._sharing, self._plan = batches, sharing, plan
        self.position = 0
        self._serial = 0
        """Among all batches that were begun: one that is left early has the position of the next one."""
        self._makers: tuple[int, ...] = ()
        self._begun = False
        self._open: int | None = None
        self._row = np.zeros(0, np.float32)

    @property
    def loss(self) -> float:
        """The mean loss of the whole batch, of all ranks; known when the batch has been gone through."""
        if not self.ready:
            raise UserError("batch.loss is not known yet", hint="ask for it after going through the batch")
        return self._loss

    def __iter__(self) -> Iterator[Any]:
        sharing = self._sharing
        if self._begun:
            raise UserError("a batch was gone through twice", hint="once for each batch of world.batches")
        sharing.optimizer.check_stepped()
        sharing.guard.check()
        self._begun, self.position, self._serial = True, sharing.steps + 1, sharing.begin_batch()
        sharing.turn_to(self)
        sharing.record_batch(self._batches.terms, self.epoch, self.step)
        yield from sharing.round.prepare_each(self.position, self._shards)
        sharing.begin_epoch(self.epoch)
        sharing.agreement.check_batch()
        sharing.vectors.enter()
        sharing.callbacks.after_ready(self.position)
        self.ready, self._loss = True, sharing.loss(self.live)
        seed_all(generator(self._plan.seed, "dropout", self.epoch, self.step, self._plan.shards))  # no shard's number
        sharing.optimizer.expect(lambda lrs: sharing.finish(self.position, self.live, lrs))

    def _shards(self) -> Iterator[Any]:
        sharing, member, assignment = self._sharing, self._sharing.member, self._sharing.update_step.assignment
        sharing.callbacks.begin_round(self.position)
        makers = member.view.members
        mine = assignment.share(self.live, makers, member.slot)
        self._makers, kept = makers, assignment.begin(self.live, self._serial, mine)
        missing = unfinished(mine, kept)
        for shard in missing:
            member.check_membership()
            sample = self._batches.next_shard(self.epoch, self.step, missing)
            sharing.vectors.enter()
            seed_all(generator(self._plan.seed, "dropout", self.epoch, self.step, shard))
            self._open, self._row = shard, assignment.rows(self.live, range(shard, shard + 1))[0]
            if sharing.meetings is not None:
                sharing.meetings.open(self.position, self.live)
            yield sample
            if member.view.members is not makers:
                raise MembershipChanged  # in a collective that the body called
            if sharing.meetings is not None:
                sharing.meetings.close()
            if self._open is not None:
                raise UserError(
                    "world.backward was not called for a shard (loss.backward() is not seen by the other ranks)",
                    hint="call world.backward(loss) once for every (x, y) of a batch",
                )
            sharing.vectors.leave(sharing.shared.new_buffers[shard])
            assignment.label(self.live, self._serial, shard, 1)
            member.pulse()
        if len(mine) > 1:
            assignment.leave(self.live, makers, member.slot, self._serial, kept)
        sharing.callbacks.before_ready(self)

    def forget(self) -> None:
        """The membership changed: a shard that is open is another rank's, or will be computed again."""
        self._open = None
        self._batches.forget()

    def backward(self, loss: torch.Tensor, weight: float | None) -> None:
        """The gradient of the open shard's loss goes to the arena."""
        if self._open is None:
            raise UserError(
                "world.backward was called outside a batch, or twice for a shard",
                hint="call it once for every (x, y) of a batch; add losses up first",
            )
        sharing, shard = self._sharing, self._open
        if sharing.member.view.members is not self._makers:
            # Dealt anew while the body was in a collective: the row is another rank's, or will be computed again.
            self._open = None
            return
        found = weight_of(loss, self._plan.shard_samples(self.step, shard), weight)
        views = sharing.vectors.layout.views(self._row[: sharing.vectors.layout.length])
        if sharing.meetings is not None:
            sharing.meetings.weigh(found)
        sharing.guard.check_gradients()
        try:
            gradients = torch.autograd.grad(loss, sharing.parameters, allow_unused=True)
        except RuntimeError as error:
            raise explained(error) from None
        for number, (view, gradient) in enumerate(zip(views.values(), gradients, strict=True)):
            sharing.shared.unused[shard, number] = gradient is None
            if gradient is None:
                view[...] = 0.0
            else:
                # Weighted here, not in the loss: that may be a bfloat16, which cannot hold 257.
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                torch.mul(dense, found, out=torch.from_numpy(view))
        sharing.watch.check(loss, sharing.shared.unused[shard])
        sharing.shared.sums[shard, LOSS] = float(loss.detach()) * found
        sharing.shared.sums[shard, WEIGHT] = found
        self._open = None


@final
class Epochs:
    """Numbers from 0 to `count` - 1. Every loop over it begins with the first that is not done."""

    def __init__(self, sharing: ModelSharing, count: int) -> None:
        self._sharing, self._count = sharing, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        # A new iterator, which nobody else holds: it is closed when the loop is left early.
        return self._sharing.callbacks.epochs(self._count)
