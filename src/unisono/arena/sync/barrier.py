"""Barrier: all ranks of a node meet, in about a microsecond.

The one idea: every rank owns one line of shared memory that nobody else writes. To arrive is to store the number of the
meeting in one's own line; to wait is to read the others' lines until all show that number. No lock, no atomic
read-modify-write, so plain Python loads and stores suffice.

    barrier = Barrier(segment.words(0, Barrier.words_needed(size)), rank, size, crowded=False)
    barrier.wait(timeout_s=10)

**Memory order.** A rank writes its data, then its arrival number n (one aligned 8-byte store: a memoryview of format
"q" moves it with a single instruction). Another reads n, then the data. With total store order (x86-64) the reader that
sees n sees every store before it; on other processors `fence` stands between data and number on both sides. Numbers
only grow, so a reader that comes late sees n or more and never waits for a value that was overwritten: nobody can be
two meetings ahead, because meeting n+1 needs everyone's arrival.

**Stamps.** A rank may leave one word beside its arrival ("I call all_reduce on 4096 bytes") that the others compare.
Stamps of even and odd meetings lie apart: a rank that is already in meeting n+1 does not overwrite what a slow one
still reads of meeting n, and n+2 cannot start before the slow one has arrived at n+1.

**Members.** Where the death of a rank is a change of membership (`arena/membership/member.py`), ranks stand still in
`meanwhile`. When all living ones do, the supervisor decides (`decide`) which meeting all have come to, the dead
included, and after which number the others go on. No arrival is later than that number, so an arrival at a meeting
that did not take place is not taken for one at the next. It is even if that last meeting's is, and odd if not: the
next one leaves its stamps alone, which a slow rank may still read.

Lines are 128 bytes apart, for processors fetch pairs of 64-byte lines. The last one is the supervisor's.
"""

import os
import time
from collections.abc import Callable, Collection

from unisono.arena.memory.fence import fence
from unisono.arena.sync.waiting import SPINS, wait_until

LINE_WORDS = 16
_LEFT = 3
_REACHED, _RESUME = 0, 1
"""Words of the supervisor's line: the last meeting that all came to; the number after which the others go on."""


class Barrier:
    """One rank's side of the meeting; every rank makes its own over the same words, which start as zeros."""

    def __init__(
        self,
        words: memoryview,
        rank: int,
        size: int,
        *,
        crowded: bool,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """`meanwhile` is called again and again during a long wait, to move what somebody else may be waiting for."""
        self._words = words
        self._decided = size * LINE_WORDS
        self._mine = rank * LINE_WORDS
        self._others = [peer * LINE_WORDS for peer in range(size) if peer != rank]
        self._spins = 0 if crowded else SPINS
        self._meanwhile = meanwhile
        self._number = 0

    @staticmethod
    def words_needed(size: int) -> int:
        return (size + 1) * LINE_WORDS

    @staticmethod
    def decide(words: memoryview, ranks: Collection[int], size: int) -> None:
        """For the supervisor, while all that live of `ranks`, who met until now, stand still."""
        numbers = [words[rank * LINE_WORDS] for rank in ranks]
        reached, latest = min(numbers), max(numbers)
        words[size * LINE_WORDS + _REACHED] = reached
        words[size * LINE_WORDS + _RESUME] = latest + (latest - reached) % 2

    @property
    def took_place(self) -> bool:
        """Whether the meeting that this rank is in is one that all came to, by what was decided last."""
        return self._words[self._decided + _REACHED] >= self._number

    def resume(self, ranks: Collection[int]) -> None:
        """From now on `ranks` meet, this one among them."""
        self._others = [rank * LINE_WORDS for rank in ranks if rank * LINE_WORDS != self._mine]
        self._number = self._words[self._decided + _RESUME]

    def wait(self, timeout_s: float, stamp: int = 0) -> bool:
        """Meets all ranks; True if all gave the same `stamp`. TimeoutError when time is up: see `missing`."""
        number, where = self.arrive(stamp)
        words = self._words
        same = True
        deadline = 0.0
        for line in self._others:
            if words[line] < number:
                # One deadline for all of them, and no look at the clock by those who need not wait.
                deadline = deadline or time.monotonic() + timeout_s
                self._await(line, number, deadline)
            if fence is not None:
                fence()
            if words[line + where] != stamp:
                same = False
        return same

    # -- the same in two halves, for those who have other things to do while they wait

    def arrive(self, stamp: int = 0) -> tuple[int, int]:
        """This rank has come: the number of the meeting, and where its stamps are."""
        number = self._number = self._number + 1
        words, where = self._words, 1 + (number & 1)
        words[self._mine + where] = stamp
        if fence is not None:
            fence()
        words[self._mine] = number
        return number, where

    def complete(self) -> bool:
        """Whether all have come to the meeting at which this rank has arrived; never blocks."""
        words, number = self._words, self._number
        for line in self._others:
            if words[line] < number:
                return False
        if fence is not None:
            fence()
        return True

    def equal(self, stamp: int) -> bool:
        """After `complete`: whether all gave this stamp."""
        words, where = self._words, 1 + (self._number & 1)
        return all(words[line + where] == stamp for line in self._others)

    def leave(self) -> None:
        """This rank will not come any more: whoever waits for it learns at once."""
        self._words[self._mine + _LEFT] = 1

    def left(self) -> list[int]:
        """The ranks that have left."""
        return [line // LINE_WORDS for line in self._others if self._words[line + _LEFT]]

    def missing(self) -> list[int]:
        """The ranks that have not arrived at the meeting this rank is in."""
        return [line // LINE_WORDS for line in self._others if self._words[line] < self._number]

    def stamps(self) -> list[int]:
        """What each rank gave in the meeting that just ended, in rank order."""
        where = 1 + (self._number & 1)
        return [self._words[line + where] for line in sorted([self._mine, *self._others])]

    def _await(self, line: int, number: int, deadline: float) -> None:
        words = self._words
        for _ in range(self._spins):
            if words[line] >= number:
                return
        # One yield inline: in a crowded world the rank we wait for is most often the next to run.
        os.sched_yield()
        meanwhile = self._meanwhile

        def ready() -> bool:
            # Gone first, then there: a rank that arrived and then left has arrived.
            gone = words[line + _LEFT]
            if words[line] >= number:
                return True
            if gone:
                raise TimeoutError
            meanwhile()
            return False

        if not wait_until(ready, deadline - time.monotonic()):
            raise TimeoutError
