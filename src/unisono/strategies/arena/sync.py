"""sync: every step is one global batch; all ranks of a node share one copy of everything and end with the same bits.

The one idea: a step's gradient is the canonical tree over its *shards*, whoever computed them. Each rank computes the
gradients of a contiguous range of shards, each in its row of the arena, and combines them there into whole nodes of
that tree. After the first meeting (READY) each rank finishes the tree for its chunk of the vector and updates that
chunk of the one shared copy of the parameters, in place; after the last meeting (COMMIT) everybody sees the new ones.

    strategy = SyncArena(shared, member, model, OptimizerOptions("adam", lr=0.001))
    result = strategy.step(batch)

Any round can be done again by other members (`arena/membership/protocol.py` tells from where): gradients that exist
are kept, whoever made them, and an update that was begun has been taken back. Who may touch what and when: `state.py`.

Several machines have an arena each. After READY one process of each, its exchanger, exchanges sums with the others
(`machines/machine_exchange.py`); then each machine does the whole update on its own copy, with the same bits.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import COMMIT
from unisono.arena.memory.fence import fence
from unisono.arena.round import Round
from unisono.comm.collective_check import RankErrors
from unisono.data.shards import shards_of_rank
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.gradients import GradientStep
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.arena.update import Group, Update, UpdateStep
from unisono.strategies.base import Batch, Check, Clock, EpochExtras, Measure, StepResult, Strategy, Tell, unchecked
from unisono.strategies.machines.mailbox import EVALUATION, ONE_MACHINE, STEP, RemoteView
from unisono.strategies.stats import ArenaStats


@final
class SyncArena(Strategy):
    """One rank's side. `on_snapshot_copy(position)` is told when the spare copy of what that round left is complete."""

    def __init__(
        self,
        shared: ArenaState,
        member: Member,
        model: Model,
        options: OptimizerOptions,
        on_snapshot_copy: Callable[[int], None] = lambda position: None,
        remote: RemoteView = ONE_MACHINE,
    ) -> None:
        self.rank, self.size = remote.rank_of(member.slot), remote.size or shared.size
        self.params, self.buffers, self.scores = shared.params, shared.buffers, shared.scores
        self._shared, self._member, self._model = shared, member, model
        self._owner = UpdateStep(shared, member, model, [Group(options)])
        self._gradient_step = GradientStep(shared, member, model, self._owner.assignment)
        self._remote = remote
        self._counts = ArenaStats(shared, member.slot, model.layout.sizes)
        self._round = Round(member, RankErrors(member.slot, remote.rank_of), self._deal_anew, self._count_wait)
        self._on_snapshot_copy, self._told = on_snapshot_copy, 0
        self._found, self._samples = StepResult(0.0, 0.0), 0
        model.bind(self.params, self.buffers)

    @property
    def at(self) -> tuple[int, bool]:
        view = self._member.view
        return view.position, view.reached == COMMIT

    @property
    def first(self) -> bool:
        return self._member.first

    @property
    def alone(self) -> bool:
        """Whether all ranks are on this machine."""
        return self._shared.mailbox is None

    @property
    def hosts(self) -> list[str]:
        return list(self._remote.hosts) or super().hosts

    def share(self, live: int) -> range:
        return self._owner.assignment.share(live, self._member.view.members, self._member.slot)

    @property
    def snapshot_source(self) -> ArenaState:
        return self._shared

    def check_reproducible(self) -> None:
        self._model.check_reproducible()

    def set_on_snapshot_copy(self, on_snapshot_copy: Callable[[int], None]) -> None:
        self._on_snapshot_copy = on_snapshot_copy

    def ask_to_halt(self) -> None:
        self._shared.requests.ask_to_halt()

    def halts_after(self, position: int) -> bool:
        return self._shared.requests.halts_after(position)

    # --- a round -----------------------------------------------------------------------------------------------------

    def step(self, batch: Batch) -> StepResult:
        self._counts.begin(batch, first=self._member.first)
        self._samples = 0
        last = self._round.run(batch.position, partial(self._make, batch), partial(self._update, batch))
        self._counts.spent["last_steps"] += last and self._member.count > 1
        self._counts.end(self._samples, first=self._member.first)
        return self._found

    def round(self, batch: Batch, work: Callable[[], None]) -> None:
        """A batch that somebody else learns: `work()` between READY and COMMIT, again whenever the members change."""
        self._counts.begin(batch, first=self._member.first)

        def enter() -> None:
            self._copy_spare()
            self._settle(batch.position, STEP, 0, due=batch.due)

        def finish() -> None:
            self._report_spare(batch.position)
            work()
            self._counts.keep()

        self._round.run(batch.position, enter, finish)

    def count(self, **spent: float) -> None:
        """What somebody else's work took, by the names of `STATS`."""
        for name, value in spent.items():
            self._counts.spent[name] += value

    def evaluate(
        self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False, check: Check = unchecked
    ) -> np.ndarray:
        shared, member = self._shared, self._member
        check()
        self._counts.keep()
        self._counts.end_epoch(first=member.first)
        table: np.ndarray | None = None

        def fill() -> None:
            self._copy_spare()
            ours = range(count) if shared.mailbox is None else shared.mailbox.machine_layout.cut(count)
            mine = shards_of_rank(len(ours), member.count, member.index)
            for number in ours[mine.start : mine.stop]:
                member.check_membership()
                if shared.table_labels[number] == position:
                    continue  # done before the members changed
                shared.table[number] = measure(number)
                if fence is not None:
                    fence()
                shared.table_labels[number] = position
                member.pulse()
            self._settle(position, EVALUATION, count, due=due)

        def finish() -> None:
            nonlocal table
            self._report_spare(position)
            self._fetch_remote(position)
            table = shared.table[:count].copy()
            if member.first:
                self._counts.end_epoch(first=True)  # whoever was first before may not have come to it
                with member.pulsing():  # it may write files
                    tell(table)

        self._round.run(position, fill, finish)
        # Who joins when the round is done already finds its table where it was left.
        return shared.table[:count].copy() if table is None else table

    def _copy_spare(self) -> None:
        """First of all in a round: copies what the round before left, if a snapshot of it is wanted."""
        if self._shared.requests.snapshot_after(self._round.done):
            self.check_reproducible()
            self._owner.copy_chunk(self._round.done)

    def _report_spare(self, position: int) -> None:
        """After READY: everybody has copied."""
        if self._member.first and self._told != (spare := self._shared.requests.snapshot_at) < position:
            self._on_snapshot_copy(spare)
            self._told = spare

    def _deal_anew(self) -> None:
        """The membership changed."""
        self._owner.take_chunk()
        self._gradient_step.forget()

    def _count_wait(self, begun: float, ended: float) -> None:
        self._counts.spent["wait_s"] += ended - begun
        if self.trace is not None:
            self.trace("wait", begun, ended)

    def _settle(self, position: int, kind: int, number: int, *, due: bool) -> None:
        if not self._member.first:
            return
        due = due and self._shared.spare is not None
        if self._shared.mailbox is None:
            self._shared.requests.decide(position, due=due)
        else:  # the exchanger settles when it has heard what other machines were asked
            self._shared.mailbox.order(position, kind, number, due=due)

    def _fetch_remote(self, position: int) -> None:
        """What the round needs from other machines is here."""
        mailbox = self._shared.mailbox
        if mailbox is not None and not mailbox.answered(position):
            begun = time.perf_counter()
            self._remote.fetch(self._round, mailbox, position)
            self._counts.spent["wait_s"] += time.perf_counter() - begun

    # --- the halves of a step ----------------------------------------------------------------------------------------

    def _make(self, batch: Batch) -> None:
        self._copy_spare()
        spent = self._counts.spent
        self._samples = self._gradient_step.make(batch, spent)
        if self.trace is not None:
            self.trace("sum", *self._gradient_step.combined)
        if batch.shares:
            spent["dealt"] = self._samples
        self._counts.keep()
        self._settle(batch.position, STEP, batch.live, due=batch.due)

    def _update(self, batch: Batch) -> None:
        shared, member, position, live = self._shared, self._member, batch.position, batch.live
        self._report_spare(position)
        self._fetch_remote(position)
        begun = time.perf_counter()
        makers = self._round.contributors(position)
        found = self._found = StepResult.of(shared.sums[:live])
        spent = self._counts.spent
        waited_s = spent["wait_s"]
        self._owner.update(position, live, makers, Update([batch.lr], batch.number), self._round.barrier)
        if member.first:
            if batch.steps > 1:
                shared.steps[batch.step : batch.step + batch.steps] = 0.0  # they may be those of another epoch
            shared.steps[batch.step] = found.loss_sum, found.correct
        if batch.shares:
            self._owner.leave_shares(position, live, makers)
        ended = time.perf_counter()
        spent["update_s"] += ended - begun - (spent["wait_s"] - waited_s)
        if self.trace is not None:
            self.trace("sum", begun, self._owner.summed_at)
            self.trace("update", self._owner.summed_at, ended)

    def close(self) -> None:
        self._remote.close()

    # --- what ranks tell ---------------------------------------------------------------------------------------------

    def epoch_sums(self) -> tuple[float, float]:
        return self._counts.epoch_sums()

    def times(self, epoch: int) -> list[dict[str, Any]]:
        return self._counts.times(epoch)

    def step_s(self) -> float:
        return self._gradient_step.step_s

    def epoch_extras(self, epoch: int) -> EpochExtras:
        mailbox = self._shared.mailbox
        return EpochExtras() if mailbox is None else EpochExtras({"sent_bytes_per_step": mailbox.sent_bytes_per_step})

    def clock(self) -> Clock:
        return self._counts.clock()

    def note_memory(self, nbytes: int) -> None:
        self._counts.spent["memory_bytes"] = float(nbytes)

    def memory_bytes(self) -> int:
        return self._counts.memory_bytes()

    def contributions(self) -> np.ndarray:
        return self._counts.contributions()
