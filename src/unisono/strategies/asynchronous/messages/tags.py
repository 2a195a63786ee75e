"""Tags: what masters and workers tell each other in messages, and under which tags.

A worker sends its gradient, a part to each master (PART), then a head to the sequencer (HEAD): whether it only
greets, the batch, its samples, losses and correct answers, and whether it was asked to end. The sequencer, which is
rank 0, tells the other masters whose push is next (ORDER, an `Entry`). Every master answers with its part of the
parameters (ANSWER), the sequencer also with batches to compute (HAND: how many, then which; `LEAVE`: no more). A
network's buffers travel with the sequencer's part (BUFFERS). Between epochs an optimizer's state goes from the masters
to the sequencer, and back when a run is resumed (STATE).

    comm.send(head(batch=7, samples=16, loss_sum=1.5, correct=3.0), SEQUENCER, HEAD)
"""

import numpy as np

SEQUENCER = 0
HEAD, PART, ORDER, ANSWER, HAND, BUFFERS, STATE = range(101, 108)
AHEAD = 2
"""Batches that a worker has in hand: the one that it computes, and the next, which it loads while it waits."""
LEAVE = -1
CLOSE = 9
"""The kind of the last entry that masters are told in an epoch, beside those of
`strategies/asynchronous/sequencer.py`."""


def head(
    batch: int = -1, samples: int = 0, loss_sum: float = 0.0, correct: float = 0.0, *, asked: bool = False
) -> np.ndarray:
    """(5,) float64; without a batch: a greeting. asked: somebody wants the run to end."""
    return np.array([batch, samples, loss_sum, correct, asked], np.float64)


def hand(*batches: int) -> np.ndarray:
    """(1 + AHEAD,) int64."""
    return np.array([len(batches), *batches, *[-1] * (AHEAD - len(batches))], np.int64)


def leave() -> np.ndarray:
    """The same, for a worker that is not needed any more."""
    return np.array([LEAVE] * (1 + AHEAD), np.int64)
