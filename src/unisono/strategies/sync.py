"""sync: every step is one global batch; all ranks of a node share one copy of everything and end with the same bits.

The one idea: a step's gradient is the canonical tree over its *shards*, whoever computed them. Each rank computes the
gradients of a contiguous range of shards, combines them into whole nodes of that tree, and leaves only those in the
arena. After the first meeting (READY) each rank finishes the tree for its chunk of the vector and updates that chunk of
the one shared copy of the parameters, in place; after the last meeting (COMMIT) everybody sees the new ones.

    strategy = Sync(shared, Member(shared.words, rank, size, crowded=False), model, OptimizerOptions("adam", lr=0.001))
    found = strategy.step(batch)

Any round can be done again by other members (`arena/protocol.py` tells from where): gradients that exist are kept,
whoever made them, and an update that was begun has been taken back. Who may touch what and when: `shared.py`.

Limits: one node.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np

from unisono.arena.member import Gone, Member, Regrouped
from unisono.arena.protocol import COMMIT, PHASES, READY, pack
from unisono.comm.arrival import late, lost
from unisono.data.loader import Group as Loaded
from unisono.data.shards import shards_of_rank
from unisono.models.base import Model, Noise, Part, ShardSums
from unisono.optim.options import OptimizerOptions
from unisono.strategies.base import Batch, Clock, Measure, NotFinite, StepResult, Strategy, Tell
from unisono.strategies.contributions import chain
from unisono.strategies.contributions import shares as shares_of
from unisono.strategies.contributions import sums as leave_sums
from unisono.strategies.exchange import ArenaExchange
from unisono.strategies.owner import Group, Owner, Update
from unisono.strategies.shared import (
    BEGUN,
    CORRECT,
    ENDED,
    FIRST_SYNC,
    FROM_STEP,
    LOSS,
    STATS,
    Shared,
)


@final
class Sync(Strategy):
    """One rank's side. `on_spare(position)` is told when the spare copy of what that round left is complete."""

    def __init__(
        self,
        shared: Shared,
        member: Member,
        model: Model,
        options: OptimizerOptions,
        on_spare: Callable[[int], None] = lambda position: None,
    ) -> None:
        self.rank, self.size = member.slot, shared.size
        self.params, self.buffers, self.scores = shared.params, shared.buffers, shared.scores
        self._shared, self._member, self._model = shared, member, model
        self._owner = Owner(shared, member, model, [Group(options)])
        self._dealing = self._owner.dealing
        self._exchange = ArenaExchange(shared, member) if model.exchange_width else None
        self._on_spare, self._told = on_spare, 0
        self._rows = np.zeros((0, len(self.params)), np.float32)
        self._views: dict[tuple[int, int, int], np.ndarray] = {}
        self._places: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
        self._found = StepResult(0.0, 0.0)
        self._spent = dict(zip(STATS, shared.stats[self.rank].tolist(), strict=True))  # another process may have begun
        self._computed = 0
        self._step_s = 0.0
        view = member.view
        self._done = view.position if view.reached == COMMIT else 0
        model.bind(self.params, self.buffers)

    @property
    def at(self) -> tuple[int, bool]:
        view = self._member.view
        return view.position, view.reached == COMMIT

    @property
    def first(self) -> bool:
        return self._member.first

    def share(self, live: int) -> range:
        return self._dealing.share(live, self._member.view.members, self.rank)

    @property
    def kept(self) -> Shared:
        return self._shared

    def tell_spares(self, on_spare: Callable[[int], None]) -> None:
        self._on_spare = on_spare

    def ask_to_halt(self) -> None:
        self._shared.requests.ask_to_halt()

    def halts_after(self, position: int) -> bool:
        return self._shared.requests.halts_after(position)

    # --- a round -----------------------------------------------------------------------------------------------------

    def step(self, batch: Batch) -> StepResult:
        self._count_for(batch)
        self._computed = 0
        self._until_done(batch.position, partial(self._make_gradients, batch), partial(self._update, batch))
        self._spent["samples"] += self._computed  # once, however often they were computed
        if self._member.first and not self._shared.clock[FIRST_SYNC]:
            self._shared.clock[FIRST_SYNC] = self._spent["wait_s"] + self._spent["update_s"]
        return self._found

    def survey(self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False) -> np.ndarray:
        shared, member = self._shared, self._member
        self._keep_count()
        if member.first and not shared.clock[BEGUN]:  # all steps of the epoch were done elsewhere: none is timed
            shared.clock[BEGUN], shared.clock[FROM_STEP] = time.perf_counter(), len(shared.steps)
        if member.first and shared.clock[ENDED] < shared.clock[BEGUN]:
            shared.clock[ENDED] = time.perf_counter()
        table: np.ndarray | None = None

        def fill() -> None:
            for number in shards_of_rank(count, member.count, member.index):
                member.pause()
                shared.table[number] = measure(number)
                member.pulse()
            self._settle(position, due)
            self._meet(position, READY)

        def finish() -> None:
            nonlocal table
            table = shared.table[:count].copy()
            if member.first:
                if shared.clock[ENDED] < shared.clock[BEGUN]:  # whoever was first before did not come to it
                    shared.clock[ENDED] = time.perf_counter()
                tell(table)
            self._meet(position, COMMIT)

        self._until_done(position, fill, finish)
        # Who joins when the round is done already finds its table where it was left.
        return shared.table[:count].copy() if table is None else table

    def _until_done(self, position: int, prepare: Callable[[], None], finish: Callable[[], None]) -> None:
        """The two halves of a round, each as often as the membership changes in it."""
        member, requests = self._member, self._shared.requests
        while True:
            view = member.view
            if (view.position, view.reached) >= (position, COMMIT):
                break
            try:
                if view.position != position:
                    if requests.spare_after(self._done):
                        self._owner.copy_chunk()
                    prepare()
                if member.first and self._told != (spare := requests.spare_at) < position:
                    self._on_spare(spare)
                    self._told = spare
                finish()
                break
            except Regrouped:
                self._owner.take_chunk()
                self._views.clear()
        self._done = position

    def _settle(self, position: int, due: bool) -> None:
        if self._member.first:
            self._shared.requests.settle(position, due=due and self._shared.spare is not None)

    def _meet(self, position: int, phase: int) -> bool:
        begun = time.perf_counter()
        try:
            return self._member.meet(position, phase)
        except TimeoutError:
            waited = time.perf_counter() - begun
            raise late(self.rank, PHASES[phase], waited, self._member.late()) from None
        except Gone as gone:
            raise lost(self.rank, PHASES[phase], gone.slots) from None
        finally:
            self._spent["wait_s"] += time.perf_counter() - begun

    # --- gradients ---------------------------------------------------------------------------------------------------

    def _make_gradients(self, batch: Batch) -> None:
        member, live = self._member, batch.live
        makers = member.view.members
        mine = self._dealing.share(live, makers, self.rank)
        begun = time.perf_counter()
        groups = batch.load(mine)
        loaded = time.perf_counter()
        self._spent["data_s"] += loaded - begun
        rows = self._room(live, makers, mine)
        computed = 0
        together = None if self._exchange is None else self._compute_together(self._exchange, batch, groups, rows)
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
            computed += group.x.shape[0] * group.x.shape[1]
            member.pulse()
        if len(mine) > 1:
            self._dealing.leave(live, makers, self.rank, rows)
        self._computed = computed
        if batch.shares:
            self._spent["dealt"] = self._computed
        self._step_s = time.perf_counter() - loaded
        self._spent["compute_s"] += self._step_s
        self._keep_count()
        self._settle(batch.position, batch.due)
        self._spent["last_steps"] += self._meet(batch.position, READY) and member.count > 1

    def _compute_together(
        self, exchange: ArenaExchange, batch: Batch, groups: list[Loaded], rows: np.ndarray
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
        self._spent["exchange_s"] += self._model.exchange_s - before
        return found

    def _view(self, live: int, group: Loaded, first: int, rows: np.ndarray) -> np.ndarray:
        """The rows of a group. The same object at every step: the model keeps its views of it."""
        at, count = group.first - first, len(group.x)
        if (live, at, count) not in self._views:
            self._views[live, at, count] = rows[at : at + count]
        return self._views[live, at, count]

    def _rows_of(self, group: Loaded) -> tuple[np.ndarray, ...]:
        """Where what is found of a group's shards goes; kept, for a small network feels every slice that is made."""
        key = group.first, len(group.x)
        if key not in self._places:
            shards, shared = slice(group.first, group.first + len(group.x)), self._shared
            sums = shared.sums[shards]
            self._places[key] = sums[:, LOSS], sums[:, CORRECT], shared.new_buffers[shards], shared.unused[shards]
        return self._places[key]

    def _room(self, live: int, makers: tuple[int, ...], mine: range) -> np.ndarray:
        """Rows for the gradients of this member's shards, padded with zeros; a single shard's is left where it lies."""
        if len(mine) <= 1:
            return self._dealing.places(live, makers, self.rank)
        if len(self._rows) < len(mine):  # not before: rows that are never used would still take memory
            self._rows = np.zeros((len(mine), len(self.params)), np.float32)
            self._views.clear()
            self._dealing.forget()
        return self._rows

    # --- the update --------------------------------------------------------------------------------------------------

    def _update(self, batch: Batch) -> None:
        shared, member, position, live = self._shared, self._member, batch.position, batch.live
        begun = time.perf_counter()
        makers = member.view.dealers if member.view.position == position else member.view.members
        loss_sum, correct = shared.sums[:live].sum(axis=0).tolist()
        if not math.isfinite(loss_sum):
            losses = shared.sums[:live, LOSS]
            shard = int(np.argmin(np.isfinite(losses)))
            raise NotFinite(shard, float(losses[shard]))
        self._found = StepResult(loss_sum, correct)
        waited_s = self._spent["wait_s"]
        self._owner.update(position, live, makers, Update([batch.lr], batch.number), self._meet)
        if member.first:
            shared.steps[batch.step] = loss_sum, correct
        if batch.shares:
            self._leave_shares(live, makers, position)
        self._spent["update_s"] += time.perf_counter() - begun - (self._spent["wait_s"] - waited_s)
        self._meet(position, COMMIT)

    # --- what ranks tell ---------------------------------------------------------------------------------------------

    def _count_for(self, batch: Batch) -> None:
        """Times and counts of this rank's place, which another process may have begun."""
        row = self._shared.stats[self.rank]
        if self._spent["epoch"] != batch.epoch:
            self._spent = dict(zip(STATS, row.tolist(), strict=True))
        if self._spent["epoch"] != batch.epoch:
            self._spent = dict.fromkeys(STATS, 0.0) | {"epoch": float(batch.epoch)}
        clock = self._shared.clock
        if self._member.first and (batch.step == 0 or not clock[BEGUN]):
            clock[BEGUN], clock[FROM_STEP] = time.perf_counter(), batch.step

    def _keep_count(self) -> None:
        self._shared.stats[self.rank] = tuple(self._spent.values())

    def epoch_sums(self) -> tuple[float, float]:
        loss_sum, correct = self._shared.steps.sum(axis=0).tolist()
        return loss_sum, correct

    def times(self, epoch: int) -> list[dict[str, Any]]:
        rows = (dict(zip(STATS, row, strict=True)) for row in self._shared.stats.tolist())
        told = [name for name in STATS if name not in ("epoch", "dealt", "memory_bytes")]
        return [{name: row[name] if row["epoch"] == epoch else 0.0 for name in told} for row in rows]

    def step_s(self) -> float:
        return self._step_s

    def clock(self) -> Clock:
        begun, ended, first_sync_s, from_step = self._shared.clock.tolist()
        return Clock(begun, ended, first_sync_s, int(from_step))

    def note_memory(self, nbytes: int) -> None:
        self._spent["memory_bytes"] = float(nbytes)

    def memory_bytes(self) -> int:
        return int(self._shared.stats[:, STATS.index("memory_bytes")].sum())

    def contributions(self) -> np.ndarray:
        shared = self._shared
        # What was left in the view in which the step was committed; owners of an earlier attempt are behind it.
        complete = shared.shares[shared.share_labels == shared.share_labels.max()]
        # Of those who worked in this epoch: others have left rows of earlier ones.
        stats = shared.stats
        dealt = np.where(stats[:, 0] == stats[:, 0].max(), stats[:, STATS.index("dealt")], 0.0)
        return shares_of(complete, self._model.layout.sizes, (dealt / (dealt.sum() or 1.0)).tolist())

    def _leave_shares(self, live: int, makers: tuple[int, ...], position: int) -> None:
        low, high, shared = self._owner.low, self._owner.high, self._shared
        parts = []
        for slot in range(self.size):
            chunks = self._dealing.left(live, makers, slot, low, high) if slot in makers else []
            parts.append((chunks, chain(len(chunks))))
        leave_sums(parts, self._owner.gradient, self._owner.ranges, shared.shares[self.rank])
        shared.share_labels[self.rank] = pack(self._member.view.number, position, 0)


def _noise_of(group: Loaded, noise: Noise | None) -> Noise | None:
    """By number within the group."""
    return None if noise is None else (lambda shard: noise(group.first + shard))
