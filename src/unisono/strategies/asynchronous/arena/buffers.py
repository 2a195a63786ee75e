"""AsyncBuffers: what masters and workers of a machine share while they train: gradients, copies of parameters, the log.

The one idea: every word has one writer at a time, and everything that decides the next action is here, not in a
process: a rank that replaces another reads on where that one was. Numbers that start anew with each epoch are *tokens*,
(epoch, count) in one word, so nothing has to be cleared while others read it.

    parts = plan_async_buffers(model, terms, state=1, size=4, pushes=3750)
    async_buffers = Arena.create(AsyncBuffersPlan(parts, size=4, masters=1)).state

Who may write what and when:
- a worker writes its gradient, its sums and its new buffers, then POSTED; they are the masters' until all of them have
  answered;
- the sequencer (on the rank that serves part 0) writes the log, then ORDERED; it assigns batches in the line of each
  worker;
- the rank that serves a part writes its stretch of state and of the worker's copy (values that cannot be computed again
  are in the twins from BEGUN to APPLIED), then the answer. The parameters themselves are in the copy that was answered
  last; they are put in their place when the epoch ends.

Which batches of an epoch are done: those that have a loss and a count of correct answers in `steps` (batches, 2)
float64, which is not a number before. SUMMED says of which epoch they are. The rank that begins an epoch clears them
first and writes SUMMED last: if it dies meanwhile, the old word is still there, and the next rank clears them again.
Snapshots contain `steps` but not the word, so a resumed run sets it (`adopt_sums`).

    begin_epoch_sums(async_buffers, steps, epoch); done = done_batches(async_buffers, steps, epoch)

Limits: two vectors as long as the parameters for each rank, three with momentum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.arena.memory.fence import fence
from unisono.arena.memory.segment import Sections, Segment
from unisono.arena.sync.crash_safe_lock import CrashSafeLocks
from unisono.arena.sync.waiting import wait_until
from unisono.arena.sync.wakeup import NONE, PollLimits, Wakeup
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import Shaped, padded
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.sequencer import PUSH, Entry

_F4, _F8, _I8 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_LINE = 16  # words: 128 bytes apart, for processors fetch pairs of 64-byte lines
_EPOCH_BITS = 32

ORDERED, DONE, KEEPING, SUMMED, FREED = range(5)
"""Of the sequencer's line: entries of the log; whether there will be more (`WHOLE`, `HALTED`); the batch (from 1) whose
sums it writes down, before the log says so; the epoch whose sums there are; whether a recorded order was given up."""
WHOLE, HALTED = 1, 2
"""Why there will be no more entries: all batches of the epoch are in the log, or the run was asked to end."""
POSTED, USED, ASLEEP, LEAVING = range(4)
"""Of a rank's line: what it sent, and the batches that it is done with, if it computes; whether it sleeps; what it is
about to send: between this and POSTED it is unknown whether the last batch that it is done with was sent."""
DEALT, HAND, LOOKED, FRESH = 0, 1, 3, 4
"""Of a worker's other line, which the sequencer writes: batches it was given; the last two of them; the last POSTED
that the sequencer has looked at; the batch (counted from 1) before which the worker is to greet, for it had none for a
while."""
APPLIED, BEGUN = 0, 1
"""Of a part's line: entries that are applied; the one whose old values are in the twins."""
FOUND = ("greets", "batch", "samples", "loss_sum", "correct")
"""What a worker tells of what it sent."""
COUNTS = ("clips", "busy_s")
"""Of each rank and epoch; then, for each part, how long the worker waited for its master."""
PATIENCE_S = 1.0
"""How long a wait without a wake-up lasts before everything is checked again; nothing ends with it."""
SPARE_ENTRIES = 4096
"""Room in the log for greetings and for the end of an epoch, beside its pushes."""


def token(epoch: int, count: int) -> int:
    """A word that grows within an epoch and from one to the next."""
    return epoch << _EPOCH_BITS | count


def count_of(word: int, epoch: int) -> int:
    """The count in a token; 0 if it is of an earlier epoch."""
    return word & (1 << _EPOCH_BITS) - 1 if word >> _EPOCH_BITS == epoch else 0


def plan_async_buffers(model: Shaped, terms: AsyncOptions, state: int, size: int, pushes: int) -> Sections:
    """Where everything lies. state: vectors of the masters' optimizer."""
    length, buffers = padded(model.layout.length), model.buffers_layout.length
    collected = int(terms.rule.collects)
    return Sections(
        {
            "words": ((1 + 2 * size + terms.masters * (1 + size)) * _LINE, _I8),
            "log": ((pushes + SPARE_ENTRIES, len(Entry._fields)), _I8),
            "found": ((size, len(FOUND)), _F8),
            "counts": ((size, len(COUNTS) + terms.masters), _F8),
            "busy": (terms.masters, _F8),
            "gradients": ((size, length), _F4),
            "copies": ((size, length), _F4),
            "velocities": ((size, length) if terms.momentum else 0, _F4),
            **{f"buffers {slot}": (buffers, _F4) for slot in range(size)},
            "new buffers": ((size, buffers - model.fixed), _F4),
            "collected": ((collected, length), _F4),
            "twins": ((1 + state + collected, length), _F4),
        }
    )


@final
class AsyncBuffers:
    """The arrays, in a segment that is zero at the start."""

    def __init__(self, segment: Segment, sections: Sections, size: int, masters: int) -> None:
        self.size, self.masters = size, masters
        self.wakeup: Wakeup | None = None
        """Wakes ranks that sleep; without it ranks only nap."""
        self.crash_safe_locks: CrashSafeLocks | None = None
        """One for each part (with part 0 goes the log), if workers lend the masters a hand."""
        self.words = sections.words(segment, "words")
        self.log, self.found, self.counts = (sections.array(segment, name) for name in ("log", "found", "counts"))
        self.gradients, self.copies = sections.array(segment, "gradients"), sections.array(segment, "copies")
        self.velocities, self.busy = sections.array(segment, "velocities"), sections.array(segment, "busy")
        self.buffers = [sections.array(segment, f"buffers {slot}") for slot in range(size)]
        """Of each worker's copy: sections of their own, for kernels read them (`aligned.py`)."""
        self.new_buffers = sections.array(segment, "new buffers")
        self.collected, self.twins = list(sections.array(segment, "collected")), list(sections.array(segment, "twins"))

    def ring(self, slot: int) -> None:
        """There is something for the rank in `slot`."""
        if self.wakeup is not None:
            self.wakeup.wake(self.words, self.worker(slot) + ASLEEP, slot)

    def wait(self, slot: int, ready: Callable[[], bool], looks: PollLimits = NONE) -> None:
        """The rank in `slot` has nothing to do until `ready()`; may return before. Looks so often first."""
        if self.wakeup is None:
            wait_until(ready, PATIENCE_S)
        else:
            self.wakeup.wait(self.words, self.worker(slot) + ASLEEP, slot, ready, looks)

    def worker(self, slot: int) -> int:
        """Where the words of a rank start that it writes itself."""
        return (1 + slot) * _LINE

    def hand(self, slot: int) -> int:
        """Where the sequencer's words for a worker start."""
        return (1 + self.size + slot) * _LINE

    def part(self, number: int) -> int:
        """Where the words of a part start."""
        return (1 + 2 * self.size + number) * _LINE

    def answer(self, slot: int, number: int) -> int:
        """Where a part's master tells a worker what it has answered."""
        return (1 + 2 * self.size + self.masters + slot * self.masters + number) * _LINE

    def standing(self, slot: int, epoch: int) -> tuple[int, int] | None:
        """(batches that a worker is done with, what it sent last), which belong together; None: not at this moment."""
        at, words = self.worker(slot), self.words
        leaving, posted = words[at + LEAVING], words[at + POSTED]
        if fence is not None:
            fence()
        used = count_of(words[at + USED], epoch)
        if fence is not None:
            fence()
        return (used, count_of(posted, epoch)) if leaving <= posted and leaving == words[at + LEAVING] else None

    def entry(self, number: int) -> Entry:
        """A line of the log."""
        return Entry(*self.log[number].tolist())

    def ordered(self, epoch: int) -> int:
        """How many lines the log has in this epoch."""
        return count_of(self.words[ORDERED], epoch)


@final
@dataclass(frozen=True)
class AsyncBuffersPlan:
    """Where the buffers lie, for `Arena.create`; they have no members."""

    sections: Sections
    size: int
    masters: int

    def over(self, segment: Segment) -> AsyncBuffers:
        return AsyncBuffers(segment, self.sections, self.size, self.masters)


@final
@dataclass(frozen=True)
class AsyncSetup:
    """What all ranks of a run have in common."""

    async_buffers: AsyncBuffers
    terms: AsyncOptions
    options: OptimizerOptions
    """The masters'."""


def begin_epoch_sums(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> None:
    """Clears the sums of an earlier epoch, unless that is done, and the counts of its ranks, dead ones included."""
    if async_buffers.words[SUMMED] == epoch:
        return
    steps[...], async_buffers.busy[...], async_buffers.counts[...] = np.nan, 0.0, 0.0
    if fence is not None:
        fence()
    async_buffers.words[SUMMED] = epoch


def done_batches(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> set[int]:
    """The batches that have sums: done in this run, or in the one that it resumes."""
    kept = count_of(async_buffers.words[KEEPING], epoch) - 1
    if kept >= 0 and not any(
        async_buffers.entry(number).batch == kept for number in range(async_buffers.ordered(epoch))
    ):
        steps[kept] = np.nan  # the sequencer died before it was in the log
    return set(np.flatnonzero(np.isfinite(steps[:, 0])).tolist())


def adopt_sums(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> None:
    """After a snapshot was restored and `epoch` is next: its sums are kept if that epoch was halted in the middle."""
    if not np.isfinite(steps[:, 0]).all():
        async_buffers.words[SUMMED] = epoch


def settle_sums(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> bool:
    """When no rank is left in this epoch and the log is applied: removes the sums of pushes that the parameters do not
    contain. Whether the epoch is whole."""
    if async_buffers.words[SUMMED] != epoch:
        if not np.isfinite(steps[:, 0]).all():
            steps[...] = np.nan  # a rank died while it cleared them
        return False
    for number in reversed(range(async_buffers.ordered(epoch))):
        entry = async_buffers.entry(number)
        if entry.updates:
            break
        if entry.kind == PUSH:
            steps[entry.batch] = np.nan  # collected, and never applied: to be done again
    return len(done_batches(async_buffers, steps, epoch)) == len(steps)
