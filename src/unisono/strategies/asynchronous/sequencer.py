"""Sequencer: what one master does for all: puts pushes in order, computes their staleness, decides which count.

The one idea: every master applies the entries of one log, in their order. The sequencer alone writes it, so a push has
one staleness and one fate on all masters; and a sequencer that reads the log of another continues where that one was.

>>> sequencer = Sequencer(SequencerRules(workers=2, order="round-robin"))
>>> [sequencer.greet(rank, turn=1).kind for rank in (1, 2)] == [HELLO, HELLO]
True
>>> sequencer.choose(posted={2}, active={1, 2}), sequencer.choose(posted={1, 2}, active={1, 2})
(None, 1)
>>> sequencer.push(1, batch=0, turn=2).staleness, sequencer.push(2, batch=1, turn=2).staleness
(0, 1)

The order of pushes is `free` (first come), `round-robin`, or read from a file: `pushes.csv` of another run
(`recorded_order.py`). In a fixed order masters wait for the worker whose turn it is; then staleness depends on the
recipe instead of the number of free cores, and a run is reproducible bit by bit.

>>> next_in_turn([1, 2, 3], last=2), next_in_turn([1, 2, 3], last=3), next_in_turn([], last=1)
(3, 1, None)

Workers begin with a greeting, which is answered with the present parameters. Pure: knows no memory and no messages.
Limits: after the death of a worker the rest of the epoch does not keep a recorded order; round-robin continues among
the workers that are left.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

from unisono.strategies.asynchronous.staleness_rules import StalenessBound, may_pass

ORDERS = ("free", "round-robin")
Planned: TypeAlias = Mapping[int, Sequence[tuple[int, int]]]
"""Epoch -> (rank, batch) of each push."""


def next_in_turn(ranks: Collection[int], last: int) -> int | None:
    """The first of `ranks` after `last`, going round."""
    return min(ranks, key=lambda rank: (rank <= last, rank), default=None)


def keeps_order(planned: Sequence[tuple[int, int]], done: Collection[int], pushed: Sequence[tuple[int, int]]) -> bool:
    """Whether an epoch has kept to its order: `done` are its batches up to here, of which this run has `pushed` the
    last (rank, batch).

    >>> order = [(1, 0), (2, 2), (1, 1)]
    >>> keeps_order(order, {0, 2}, [(2, 2)]), keeps_order(order, {0, 2}, [(1, 2)]), keeps_order(order, {0, 1}, [])
    (True, False, False)
    """
    first = planned[: len(done)]
    return {batch for _, batch in first} == set(done) and list(first[len(done) - len(pushed) :]) == list(pushed)


def is_order_file(order: str) -> bool:
    """Whether --order names a file."""
    return order not in ORDERS


HELLO, PUSH, DROP, FLUSH = range(4)
"""Kinds of entries: parameters asked for; a gradient that counts; one too stale; what is left when an epoch ends."""


class Entry(NamedTuple):
    """A line of the log; whole numbers, for it lies in shared memory and travels in messages."""

    kind: int
    rank: int
    batch: int
    staleness: int
    turn: int
    """The worker's own count of what it sent in this epoch: what an answer names."""
    ordinal: int
    """Which push of the epoch it is, from 0."""
    updates: int
    """Whether the parameters change: with a rule that collects, at the last of a group."""
    samples: int


@final
@dataclass(frozen=True)
class SequencerRules:
    """What a sequencer goes by."""

    workers: int
    order: str = "free"
    planned: Sequence[tuple[int, int]] | None = None
    """(rank, batch) of each push of the epoch, if the order is that of a file."""
    bound: StalenessBound | None = None
    group: int = 1
    """How many gradients make one update."""


@final
class Sequencer:
    """The sequencer of one epoch."""

    def __init__(self, rules: SequencerRules, done: int = 0) -> None:
        """done: pushes of the epoch before this log begins, in a run that was resumed."""
        self._rules = rules
        self._stamps: dict[int, int] = {}
        self._last = -1
        self._version = self._collected = 0
        self.pushes, self._before = done, done
        """How many there were, dropped ones included."""
        self.fixed = rules.order != "free"
        """Whether the order is fixed; no longer after a death."""

    def greet(self, rank: int, turn: int) -> Entry:
        """A worker that begins, here or again."""
        return self.again(Entry(HELLO, rank, -1, 0, turn, self.pushes, 0, 0))

    def choose(self, posted: Collection[int], active: Collection[int]) -> int | None:
        """The rank whose push is next; None: none yet. active: those with a push now or later, `posted` included."""
        # An epoch begins when all have parameters; else those of the last would depend on when it came, and the order
        # of the pushes alone would not tell what happened.
        if (self.fixed or self.pushes == self._before) and not self._stamps.keys() >= set(active):
            return None
        if self.fixed:
            planned = self._rules.planned
            wanted = next_in_turn(active, self._last) if planned is None else planned[self.pushes][0]
            return wanted if wanted in posted else None
        bound = self._rules.bound
        if bound is None or bound.drop:
            return next_in_turn(posted, self._last)
        stamps = {rank: self._stamps[rank] for rank in active if rank in self._stamps}
        oldest = min(stamps, key=lambda rank: stamps[rank], default=-1)
        passing = [
            rank
            for rank in posted
            if rank == oldest
            or may_pass(self._version, (stamp for other, stamp in stamps.items() if other != rank), bound.most)
        ]
        return next_in_turn(passing, self._last)

    def staleness(self, rank: int) -> int:
        """The staleness of the gradient that this worker has computed, or computes."""
        return self._version - self._stamps[rank]

    def push(self, rank: int, batch: int, turn: int, samples: int = 1) -> Entry:
        """The push of the worker that was chosen."""
        staleness, bound = self.staleness(rank), self._rules.bound
        dropped = bound is not None and bound.drop and staleness > bound.most
        full = not dropped and self._collected + 1 >= self._rules.group
        kind = DROP if dropped else PUSH
        return self.again(Entry(kind, rank, batch, staleness, turn, self.pushes, int(full), samples))

    def flush(self) -> Entry | None:
        """After the last push of an epoch: what is collected and not applied yet; None if nothing is."""
        return self.again(Entry(FLUSH, -1, -1, 0, 0, self.pushes, 1, 0)) if self._collected else None

    def again(self, entry: Entry) -> Entry:
        """Takes note of an entry, its own or that of a sequencer before it."""
        if entry.kind == PUSH:
            self._collected += 1
        if entry.updates:
            self._version += 1
            self._collected = 0
        if entry.kind in (PUSH, DROP):
            self.pushes += 1
            self._last = entry.rank
        if entry.rank >= 0:
            self._stamps[entry.rank] = self._version
        return entry


def staleness_of(order: Sequence[tuple[int, int]], rules: SequencerRules) -> list[int]:
    """The staleness of every push, if the pushes of an epoch come in this order of (rank, batch)."""
    sequencer = Sequencer(rules)
    for rank in sorted({rank for rank, _ in order}):
        sequencer.greet(rank, 0)
    return [sequencer.push(rank, batch, 0).staleness for rank, batch in order]
