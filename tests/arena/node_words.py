"""Shared words for a state machine: real code is taken apart into what it reads and what it writes, in order.

The one idea: functions of the arena only index their words. A `Recording` notes what they write, so that the writes can
be applied one at a time; a `Replay` stops them in the middle of reading, so that others may write meanwhile.

    log = []; publish(Recording(words, WORDS, log), view, size)         # log: (WORDS, index, value), ...
    try: current_view(words := Replay(now, seen=()), size)
    except Suspended: seen = words.seen                                 # later: Replay(then, seen)
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, final

WORDS, CELLS, TWINS, GRADIENTS, SQUARES, SPARE, CHANGE = range(7)
"""What a write goes to: the first fields of `State`, in their order; CHANGE is the update of a cell by a round."""
Write: TypeAlias = tuple[int, int, Any]

VIEW_AT = 0
"""The word that holds the number of the newest view."""


@final
class Recording(list[int]):
    """A list that notes what is written, element by element and in order."""

    def __init__(self, values: Sequence[int], kind: int, log: list[Write]) -> None:
        super().__init__(values)
        self._kind, self._log = kind, log

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, value)
        pairs = zip(range(at.start, at.stop), value, strict=True) if isinstance(at, slice) else [(at, int(value))]
        self._log.extend((self._kind, place, written) for place, written in pairs)


class Suspended(Exception):
    """The function wants to read more than it may at once."""


@final
class Replay:
    """Gives what was `seen` before, then reads on: the number of a view, or any number of words of its row."""

    def __init__(self, words: Sequence[int], seen: Sequence[int]) -> None:
        self._words, self.seen = words, list(seen)
        self._again, self._last = len(seen), -1

    def __getitem__(self, at: int) -> int:
        if self._again:
            self._again -= 1
            return self.seen[-1 - self._again]
        if self._last >= 0 and VIEW_AT in (self._last, at):
            raise Suspended
        self._last = at
        self.seen.append(self._words[at])
        return self.seen[-1]
