"""GradientStep: a member's part of the gradients: it computes those of its shards, and leaves whole nodes of their
tree.

The one idea: what is done before READY depends on the batch, the committed parameters and the membership alone, so it
can be done again by other members; what is left in the arena is the same, whoever left it. What somebody has finished
before the membership changed is not done again (`shard_sums.py`).

    gradient_step = GradientStep(shared, member, model, assignment)
    samples = gradient_step.make(batch, spent)                        # spent: seconds by name, added to
    gradient_step.forget()                                            # after every change of membership

Shards of one size are computed in one call, which saves small networks much of their time. Those that take long are
computed one by one: in between this member sees whether the membership is changing, and stands still at once.

Limits: what one shard computes must not depend on others, but for numbers that all exchange (`shard_exchange.py`):
those are computed together, and all of them again after a change.
"""

import time
from collections.abc import Collection
from typing import final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.arena.reduction_tree import Span
from unisono.data.loader import Group
from unisono.models.base import Model, Noise, Part, ShardSums
from unisono.strategies.arena.shard_exchange import ShardExchange
from unisono.strategies.arena.shard_sums import ShardAssignment, unfinished
from unisono.strategies.arena.state import CORRECT, LOSS, ArenaState
from unisono.strategies.base import Batch

LONG_S = 0.01
"""A shard that takes longer is computed by itself."""


@final
class GradientStep:
    """One member's side."""

    def __init__(self, shared: ArenaState, member: Member, model: Model, assignment: ShardAssignment) -> None:
        self._shared, self._member, self._model, self._assignment = shared, member, model, assignment
        self._exchange = ShardExchange(shared, member) if model.exchange_width else None
        self._views: dict[tuple[int, int, int], np.ndarray] = {}
        self._places: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
        self._anew, self._shard_s = True, 0.0
        self.step_s = 0.0
        """What the gradients of the last batch took."""
        self.combined = 0.0, 0.0
        """When its shards' gradients were added up, from and until, as time.perf_counter."""

    def forget(self) -> None:
        """The members changed, and with them who computes what."""
        self._anew = True

    def make(self, batch: Batch, spent: dict[str, float]) -> int:
        """The gradients of this member's shards, and what else is found of them; how many samples they have."""
        member, live, position = self._member, batch.live, batch.position
        makers = member.view.members
        mine = self._assignment.share(live, makers, member.slot)
        begun = time.perf_counter()
        groups = batch.load(mine)
        loaded = time.perf_counter()
        spent["data_s"] += loaded - begun
        samples, shards = 0, 0
        exchange = self._exchange
        kept: tuple[Span, ...] = ()
        together = None if exchange is None else self._compute_together(exchange, batch, groups, spent)
        # How long a shard takes now is not known in the first batch after a change, nor whether some are done.
        singly = exchange is None and (self._anew or self._shard_s > LONG_S)
        if self._anew and exchange is None:
            kept = self._assignment.begin(live, position, mine)
        for number, group in enumerate(groups):
            samples += group.x.shape[0] * group.x.shape[1]
            for piece in _missing(group, kept) if singly else (group,):
                member.check_membership()
                if together is None:
                    view, seeded = self._view(live, piece), _noise_of(piece, batch.noise)
                    found = self._model.loss_and_grad(piece.x, piece.y, view, 1.0 / batch.samples, seeded)
                else:
                    found = together[number]
                self._publish(piece, found)
                self._assignment.label(live, position, piece.first, len(piece.x))
                shards += len(piece.x)
                member.pulse()
        computed = time.perf_counter()
        if len(mine) > 1:
            self._assignment.leave(live, makers, member.slot, position, kept)
        ended = time.perf_counter()
        self.combined = computed, ended
        self.step_s = ended - loaded
        self._anew = False
        if shards:
            self._shard_s = (computed - loaded) / shards
        spent["compute_s"] += self.step_s
        return samples

    def _publish(self, group: Group, found: ShardSums) -> None:
        """What was found of a group's shards beside their gradients."""
        losses, corrects, buffers, unused = self._rows_of(group)
        losses[...] = found.loss_sum
        corrects[...] = found.correct
        if buffers.size:
            buffers[...] = found.new_buffers[:, : buffers.shape[1]] if self._model.fixed else found.new_buffers
        if self._model.may_skip_params:
            unused[...] = False if found.used is None else ~found.used

    def _compute_together(
        self, exchange: ShardExchange, batch: Batch, groups: list[Group], spent: dict[str, float]
    ) -> list[ShardSums]:
        """All shards at once, for those that exchange numbers in the middle of their work."""
        if not groups:
            return []
        exchange.open(batch.position, batch.live)
        before = self._model.exchange_s
        parts = [
            Part(group.x, group.y, self._view(batch.live, group), _noise_of(group, batch.noise)) for group in groups
        ]
        found = self._model.loss_and_grad_together(parts, 1.0 / batch.samples, exchange)
        spent["exchange_s"] += self._model.exchange_s - before
        return found

    def _view(self, live: int, group: Group) -> np.ndarray:
        """The rows of a group. The same object at every step: the model keeps its views of it."""
        key = live, group.first, len(group.x)
        if key not in self._views:
            self._views[key] = self._assignment.rows(live, range(group.first, group.first + len(group.x)))
        return self._views[key]

    def _rows_of(self, group: Group) -> tuple[np.ndarray, ...]:
        """Where what is found of a group's shards goes; kept, for a small network feels every slice that is made."""
        key = group.first, len(group.x)
        if key not in self._places:
            shards, shared = slice(group.first, group.first + len(group.x)), self._shared
            sums = shared.sums[shards]
            self._places[key] = sums[:, LOSS], sums[:, CORRECT], shared.new_buffers[shards], shared.unused[shards]
        return self._places[key]


def _missing(group: Group, kept: Collection[Span]) -> list[Group]:
    """The shards of a group one by one, without those that are `kept`."""
    if len(group.x) == 1 and not kept:
        return [group]
    left = (shard - group.first for shard in unfinished(range(group.first, group.first + len(group.x)), kept))
    return [Group(group.first + at, group.x[at : at + 1], group.y[at : at + 1]) for at in left]


def _noise_of(group: Group, noise: Noise | None) -> Noise | None:
    """By number within the group."""
    return None if noise is None else (lambda shard: noise(group.first + shard))
