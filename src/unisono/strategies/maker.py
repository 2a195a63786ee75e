"""Maker: a member's part of the gradients: it computes those of its shards, and leaves whole nodes of their tree.

The one idea: what is done before READY depends on the batch, the committed parameters and the membership alone, so it
can be done again by other members; what is left in the arena is the same, whoever left it.

    maker = Maker(shared, member, model, dealing)
    samples = maker.make(batch, spent)                        # spent: seconds by name, added to
    maker.forget()                                            # after every change of membership

Limits: what one shard computes must not depend on others, but for numbers that all exchange (`exchange.py`).
"""

import time
from typing import final

import numpy as np

from unisono import aligned
from unisono.arena.member import Member
from unisono.data.loader import Group
from unisono.models.base import Model, Noise, Part, ShardSums
from unisono.strategies.base import Batch
from unisono.strategies.dealing import Dealing, Slots
from unisono.strategies.exchange import ArenaExchange
from unisono.strategies.shared import CORRECT, LOSS, Shared


@final
class Maker:
    """One member's side."""

    def __init__(self, shared: Shared, member: Member, model: Model, dealing: Dealing) -> None:
        self._shared, self._member, self._model, self._dealing = shared, member, model, dealing
        self._exchange = ArenaExchange(shared, member) if model.exchange_width else None
        self._rows = aligned.zeros((0, len(shared.params)))
        self._views: dict[tuple[int, int, int], np.ndarray] = {}
        self._places: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
        self.step_s = 0.0
        """What the gradients of the last batch took."""
        self.combined = 0.0, 0.0
        """When its shards' gradients were added up, from and until, as time.perf_counter."""

    def forget(self) -> None:
        """The members changed, and with them who computes what."""
        self._views.clear()

    def make(self, batch: Batch, spent: dict[str, float]) -> int:
        """The gradients of this member's shards, and what else is found of them; how many samples they have."""
        member, live = self._member, batch.live
        makers = member.view.members
        mine = self._dealing.share(live, makers, member.slot)
        begun = time.perf_counter()
        groups = batch.load(mine)
        loaded = time.perf_counter()
        spent["data_s"] += loaded - begun
        rows = self._room(live, makers, mine)
        samples = 0
        exchange = self._exchange
        together = None if exchange is None else self._compute_together(exchange, batch, groups, rows, spent)
        for number, group in enumerate(groups):
            member.pause()
            if together is None:
                view, seeded = self._view(live, group, mine.start, rows), _noise_of(group, batch.noise)
                found = self._model.loss_and_grad(group.x, group.y, view, 1.0 / batch.samples, seeded)
            else:
                found = together[number]
            losses, corrects, buffers, unused = self._rows_of(group)
            losses[...] = found.loss_sum
            corrects[...] = found.correct
            if buffers.size:
                buffers[...] = found.new_buffers[:, : buffers.shape[1]] if self._model.fixed else found.new_buffers
            if self._model.skips:
                unused[...] = False if found.used is None else ~found.used
            samples += group.x.shape[0] * group.x.shape[1]
            member.pulse()
        computed = time.perf_counter()
        if len(mine) > 1:
            self._dealing.leave(live, makers, member.slot, rows)
        ended = time.perf_counter()
        self.combined = computed, ended
        self.step_s = ended - loaded
        spent["compute_s"] += self.step_s
        return samples

    def _compute_together(
        self, exchange: ArenaExchange, batch: Batch, groups: list[Group], rows: np.ndarray, spent: dict[str, float]
    ) -> list[ShardSums]:
        """All shards at once, for those that exchange numbers in the middle of their work."""
        if not groups:
            return []
        exchange.open(batch.position, batch.live)
        first, before = groups[0].first, self._model.exchange_s
        parts = [
            Part(group.x, group.y, self._view(batch.live, group, first, rows), _noise_of(group, batch.noise))
            for group in groups
        ]
        found = self._model.loss_and_grad_together(parts, 1.0 / batch.samples, exchange)
        spent["exchange_s"] += self._model.exchange_s - before
        return found

    def _view(self, live: int, group: Group, first: int, rows: np.ndarray) -> np.ndarray:
        """The rows of a group. The same object at every step: the model keeps its views of it."""
        at, count = group.first - first, len(group.x)
        if (live, at, count) not in self._views:
            self._views[live, at, count] = rows[at : at + count]
        return self._views[live, at, count]

    def _rows_of(self, group: Group) -> tuple[np.ndarray, ...]:
        """Where what is found of a group's shards goes; kept, for a small network feels every slice that is made."""
        key = group.first, len(group.x)
        if key not in self._places:
            shards, shared = slice(group.first, group.first + len(group.x)), self._shared
            sums = shared.sums[shards]
            self._places[key] = sums[:, LOSS], sums[:, CORRECT], shared.new_buffers[shards], shared.unused[shards]
        return self._places[key]

    def _room(self, live: int, makers: Slots, mine: range) -> np.ndarray:
        """Rows for the gradients of this member's shards, padded with zeros; a single shard's is left where it lies."""
        if len(mine) <= 1:
            return self._dealing.places(live, makers, self._member.slot)
        if len(self._rows) < len(mine):  # not before: rows that are never used would still take memory
            self._rows = aligned.zeros((len(mine), len(self._shared.params)))
            self._views.clear()
            self._dealing.forget()
        return self._rows


def _noise_of(group: Group, noise: Noise | None) -> Noise | None:
    """By number within the group."""
    return None if noise is None else (lambda shard: noise(group.first + shard))
