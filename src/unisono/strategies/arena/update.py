"""UpdateStep: a member's part of the update: it finishes the sum for its chunk of the vector and updates the chunk in
place.

The one idea: what is done between READY and COMMIT depends on the arena and the membership alone, so it can be done
again by other members; who computed the gradients, and how, does not matter here.

    owner = UpdateStep(shared, member, model, [Group(options, parameters)])
    owner.take_chunk()                                        # after every change of membership
    owner.update(position, live, makers, Update(lrs=[0.1], number=7), meet)

Parameters may be in groups, each with an optimizer of its own; all have the same vectors of state.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from unisono import aligned
from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import NORMS, pack
from unisono.arena.reduction_tree import chunk_bounds, combine
from unisono.optim import make
from unisono.optim.base import Scale
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.shard_sums import ShardAssignment, Slots
from unisono.strategies.arena.state import ArenaState, Shaped, scaling_of, segments_of
from unisono.strategies.contribution_stats import chain
from unisono.strategies.contribution_stats import sums as leave_sums
from unisono.strategies.unused_parameters import Stretches, behind_of, left_alone

_NONE = np.zeros(0, np.bool_)
_FREELY: AbstractContextManager[None] = nullcontext()


@final
@dataclass(frozen=True)
class Group:
    """Parameters (by their place in the layout) that one optimizer updates; all of them if None."""

    options: OptimizerOptions
    parameters: frozenset[int] | None = None


@final
class Update(NamedTuple):
    """What a step is told from outside."""

    lrs: Sequence[float]
    """One for each group."""
    number: int
    """Of the step, from 1."""
    factor: float = 1.0
    """Gradients are multiplied by it first."""


@final
class UpdateStep:
    """One member's side."""

    def __init__(self, shared: ArenaState, member: Member, shapes: Shaped, groups: Sequence[Group]) -> None:
        self._shared, self._member, self._shapes, self._groups = shared, member, shapes, groups
        self._optimizers = [make(group.options) for group in groups]
        self._counts = any(optimizer.counts for optimizer in self._optimizers)
        self._scaling, self._segments = scaling_of(shapes, groups[0].options), segments_of(shapes)
        self.assignment = ShardAssignment(shared.gradients, shared.labels, shared.mailbox)
        self.summed_at = 0.0
        """When the sum of the last update was finished, as time.perf_counter."""
        self.take_chunk()

    def take_chunk(self) -> None:
        """The part of the vector that is this member's in the present view."""
        self.assignment.forget()
        self.low, self.high = chunk_bounds(len(self._shared.params), self._member.count, self._member.index)
        self.ranges = self._segments.ranges(self.low, self.high)
        self._stretches = Stretches(self.ranges)
        self._chunks = [row[self.low : self.high] for row in self._shared.vectors]
        self.gradient = self._room = aligned.empty(self.high - self.low)
        self._pieces = [
            (self._optimizers[number], number, chunks[0], slice(low, high), chunks[1:])
            for low, high, number in self._cut_into_groups()
            for chunks in ([chunk[low:high] for chunk in self._chunks],)
        ]
        self._buffer_rows: dict[int, tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]] = {}

    def _cut_into_groups(self) -> list[tuple[int, int, int]]:
        """(low, high, group): stretches of the chunk that one optimizer updates."""
        if len(self._groups) == 1 and self._groups[0].parameters is None:
            return [(0, self.high - self.low, 0)]
        of = {
            parameter: number
            for number, group in enumerate(self._groups)
            for parameter in group.parameters or frozenset()
        }
        found: list[tuple[int, int, int]] = []
        for low, high, parameter in self.ranges:
            if parameter not in of:
                continue
            # Joined with its neighbour only if nothing lies between them: that would be trained, and is in no group.
            start = found.pop()[0] if found and found[-1][1:] == (low, of[parameter]) else low
            found.append((start, high, of[parameter]))
        return found

    def copy_chunk(self, position: int) -> None:
        """This member's part of the spare copy, which is that of what round `position` left."""
        lasting, spare = self._shared.lasting_at(position), self._shared.spare
        if spare is None:
            return
        for vector, copy in zip(lasting.vectors, spare.vectors, strict=True):
            copy[self.low : self.high] = vector[self.low : self.high]
        if self._member.first:
            spare.buffers[...], spare.steps[...], spare.scores[...] = lasting.buffers, lasting.steps, lasting.scores
            spare.missed[...] = lasting.missed

    def update(self, position: int, live: int, makers: Slots, update: Update, meet: Callable[[int, int], bool]) -> None:
        """Sums and updates the chunk, and on the first member the buffers; meet(position, NORMS) if norms count."""
        shared, slot = self._shared, self._member.slot
        gradient = self.assignment.finish(live, makers, self.low, self.high, self._room)
        if update.factor != 1.0:
            gradient = np.multiply(gradient, np.float32(update.factor), out=self._room)
        self.gradient = gradient
        self.summed_at = time.perf_counter()
        if self._scaling.rows:
            self._scaling.publish(self._chunks[0], gradient, self.low, shared.squares)
            meet(position, NORMS)
        scale = self._scaling.scale(shared.squares, self.low, self.high)
        if shared.undo is not None:
            shared.undo.keep(slot, position, self.low, self.high)
        unused = np.asarray(shared.unused[:live].all(axis=0)) if self._shapes.may_skip_params else _NONE
        behind = None
        if unused.size and self._counts:
            behind = behind_of(shared.missed, update.number, unused, note=self._member.first)
        if behind is not None:
            self._update_stretches(behind, update, scale)
        else:
            with left_alone(self._chunks, self.ranges, unused) if unused.size and unused.any() else _FREELY:
                for optimizer, number, params, where, state in self._pieces:
                    optimizer.update(params, gradient[where], state, update.lrs[number], update.number, scale)
        if self._member.first:
            self._update_buffers(position, live)

    def _update_stretches(self, behind: np.ndarray, update: Update, scale: Scale) -> None:
        """Where parameters have not made the same number of steps."""
        for low, high, late in self._stretches.of(behind):
            for optimizer, number, params, where, state in self._pieces:
                start, stop = max(low, where.start), min(high, where.stop)
                if start < stop:
                    part = slice(start - where.start, stop - where.start)
                    rows = [row[part] for row in state]
                    made = update.number - late
                    optimizer.update(params[part], self.gradient[start:stop], rows, update.lrs[number], made, scale)

    def _update_buffers(self, position: int, live: int) -> None:
        shared, buffers = self._shared, self._shared.buffers
        if not buffers.size:
            return
        if shared.buffers_undo is not None:
            shared.buffers_undo.keep(self._member.slot, position, 0, len(buffers))
        if live not in self._buffer_rows:
            rows, width = shared.new_buffers[:live], len(buffers) - self._shapes.unaveraged
            averaged, taken = buffers[:width], buffers[width : rows.shape[1]]
            self._buffer_rows[live] = list(rows[:, :width]), averaged, rows[0, width:], taken
        parts, averaged, first, taken = self._buffer_rows[live]
        combine(parts, averaged, np.add)
        if live > 1:
            np.multiply(averaged, np.float32(1.0 / live), out=averaged)
        if taken.size:
            taken[...] = first

    def leave_shares(self, position: int, live: int, makers: Slots) -> None:
        """What each maker contributed to this member's chunk of the sum, for `contributions.shares`."""
        shared, slot, parts = self._shared, self._member.slot, []
        for gradient_step in range(shared.size):
            chunks = (
                self.assignment.left(live, makers, gradient_step, self.low, self.high)
                if gradient_step in makers
                else []
            )
            parts.append((chunks, chain(len(chunks))))
        leave_sums(parts, self.gradient, self.ranges, shared.shares[slot])
        shared.share_labels[slot] = pack(self._member.view.number, position, 0)
