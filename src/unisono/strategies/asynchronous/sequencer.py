"""Sequencer: what one master does for all: puts pushes in order, finds out how stale each is, decides what becomes of
it.

The one idea: every master applies the entries of one log, in their order. The sequencer alone writes it, so a push
has one staleness and one fate on all masters; and a sequencer that is shown the log of another goes on where that one
was.

>>> sequencer = Sequencer(SequencerRules(workers=2, order="round-robin"))
>>> [sequencer.greet(rank, turn=1).kind for rank in (1, 2)] == [HELLO, HELLO]
True
>>> sequencer.choose(posted={2}, active={1, 2}), sequencer.choose(posted={1, 2}, active={1, 2})
(None, 1)
>>> sequencer.push(1, batch=0, turn=2).staleness, sequencer.push(2, batch=1, turn=2).staleness
(0, 1)

Workers begin with a greeting, which is answered with the present parameters. Pure: knows no memory and no messages.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from unisono.strategies.asynchronous.push_order import next_in_turn
from unisono.strategies.asynchronous.staleness_rules import StalenessBound, may_pass

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
    """For one epoch."""

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
        """Whose push is next; None: nobody's yet. active: those who have or will have a push, `posted` among them."""
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
        """Of what this worker has computed, or computes."""
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
    """Of every push, if the pushes of an epoch come in this order of (rank, batch)."""
    sequencer = Sequencer(rules)
    for rank in sorted({rank for rank, _ in order}):
        sequencer.greet(rank, 0)
    return [sequencer.push(rank, batch, 0).staleness for rank, batch in order]
