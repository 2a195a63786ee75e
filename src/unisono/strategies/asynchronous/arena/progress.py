"""Sums: which batches of an epoch are done: those that have a loss and a count of correct answers.

The one idea: the sums of a batch are its mark, and a word beside them says of which epoch they are. Whoever begins an
epoch clears them first and says so last: who dies meanwhile leaves the old word, and the next one clears them again.

    begin(async_buffers, steps, epoch); done = done_batches(async_buffers, steps, epoch)

`steps` (batches, 2) float64, not a number before a batch is done. They are kept in snapshots; the word is not, so who
resumes a run sets it (`adopt`).
"""

import numpy as np

from unisono.arena.memory.fence import fence
from unisono.strategies.asynchronous.arena.buffers import KEEPING, SUMMED, AsyncBuffers, count_of
from unisono.strategies.asynchronous.sequencer import PUSH


def begin(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> None:
    """Clears what an earlier epoch left, unless that is done; what ranks counted, too: who is dead counts no more."""
    if async_buffers.words[SUMMED] == epoch:
        return
    steps[...], async_buffers.busy[...], async_buffers.counts[...] = np.nan, 0.0, 0.0
    if fence is not None:
        fence()
    async_buffers.words[SUMMED] = epoch


def done_batches(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> set[int]:
    """Those that have sums: done in this run, or in the one that it resumes."""
    kept = count_of(async_buffers.words[KEEPING], epoch) - 1
    if kept >= 0 and not any(
        async_buffers.entry(number).batch == kept for number in range(async_buffers.ordered(epoch))
    ):
        steps[kept] = np.nan  # the sequencer died before it was in the log
    return set(np.flatnonzero(np.isfinite(steps[:, 0])).tolist())


def adopt(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> None:
    """Of a snapshot, when `epoch` is the next to be done: its own, if it was halted in the middle."""
    if not np.isfinite(steps[:, 0]).all():
        async_buffers.words[SUMMED] = epoch


def leave(async_buffers: AsyncBuffers, steps: np.ndarray, epoch: int) -> bool:
    """When no rank is left in this epoch, everything in the log being applied: makes sums say what the parameters
    hold. Whether the epoch is whole."""
    if async_buffers.words[SUMMED] != epoch:
        if not np.isfinite(steps[:, 0]).all():
            steps[...] = np.nan  # somebody died while it cleared them
        return False
    for number in reversed(range(async_buffers.ordered(epoch))):
        entry = async_buffers.entry(number)
        if entry.updates:
            break
        if entry.kind == PUSH:
            steps[entry.batch] = np.nan  # collected, and never applied: to be done again
    return len(done_batches(async_buffers, steps, epoch)) == len(steps)
