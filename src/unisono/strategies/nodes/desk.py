"""Desk: the part of a machine's arena where its ranks leave what goes to other machines, and find what came from them.

The one idea: one process of each machine, the *courier* (`courier.py`), talks to the others; everybody else works on
the arena alone. The first member writes down what the round is about, all meet, the courier exchanges, writes the round
on the desk, and all go on. What came lies in the arena, so a round can be done again without asking anybody twice.

    desk.order(position, STEP, live, due=False)       # the first member, before READY
    member.wait(lambda: desk.answered(position) or desk.failed)       # everybody, after READY
    desk.answer(position)                             # the courier

Who may touch what: orders as gradients; all other arrays are the courier's from READY until it answers.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import numpy as np

from unisono.arena.canon import Span
from unisono.arena.fence import fence
from unisono.strategies.nodes.seating import Seating
from unisono.strategies.nodes.traffic import at_once

STEP, SURVEY = 1, 2
"""Kinds of rounds."""
_AT, _KIND, _NUMBER, _DUE, _ANSWERED, _FAILED, _STEPS, _SENT = 0, 1, 2, 3, 16, 17, 18, 19
_WORDS = 32
_LOST, _DIVERGED = 1, 2

Table: TypeAlias = dict[str, tuple[int | tuple[int, ...], np.dtype]]


def desk_sections(seating: Seating | None, lives: Sequence[int], widths: tuple[int, int, int]) -> Table:
    """What a desk needs in the arena. widths: of the vector, padded; parameters; numbers a rank counts."""
    length, parameters, counted = widths
    far = whole = 0
    several = seating is not None and seating.count > 1
    if seating is not None and several:
        direct = [live for live in lives if _at_once(seating, live)]
        far = max((_far_rows(seating, live) for live in direct), default=0)
        whole = length if len(direct) < len(lives) else 0
    size = seating.size if seating is not None and several else 0
    f4, f8 = np.dtype(np.float32), np.dtype(np.float64)
    return {
        "desk": (_WORDS if several else 0, np.dtype(np.int64)),
        "far sums": ((far, length), f4),
        "whole": (whole, f4),
        "world stats": ((size, counted), f8),
        "world shares": ((size + 1 if several else 0, parameters, 3), f8),
    }


@final
class Desk:
    """One process's hold on it; `used`: elements of the vector that are not padding."""

    def __init__(self, array: Callable[[str], np.ndarray], seating: Seating, used: int) -> None:
        self.seating, self.used = seating, used
        self._words = array("desk").data
        self._far, self.whole = array("far sums"), array("whole")
        """whole: the sum of all shards, where it comes in parts."""
        self.stats, self.shares = array("world stats"), array("world shares")
        """What all ranks counted, and contributed, by rank; the last row of shares is that of all."""

    # --- words -------------------------------------------------------------------------------------------------------

    def order(self, position: int, kind: int, number: int, *, due: bool) -> None:
        """What round `position` is about: so many shards, or rows of a table; due: a spare copy is wanted after it."""
        words = self._words
        words[_AT], words[_KIND], words[_NUMBER], words[_DUE] = position, kind, number, int(due)

    @property
    def ordered_at(self) -> int:
        """The round that was ordered last; to be served when all members have come to its READY."""
        return self._words[_AT]

    @property
    def ordered(self) -> tuple[int, int, bool]:
        """(kind, number, due) of the round that all members have come to."""
        return self._words[_KIND], self._words[_NUMBER], bool(self._words[_DUE])

    def answered(self, position: int) -> bool:
        """Whether what belongs to that round has come."""
        return self._words[_ANSWERED] >= position

    def answer(self, position: int) -> None:
        """All that belongs to the round is in the arena."""
        if fence is not None:
            fence()
        self._words[_ANSWERED] = position

    @property
    def failed(self) -> bool:
        """Whether no round will be answered any more."""
        return bool(self._words[_FAILED])

    @property
    def diverged(self) -> bool:
        """Whether that is because the machines have different parameters."""
        return bool(self._words[_FAILED] == _DIVERGED)

    def fail(self, *, diverged: bool = False) -> None:
        """No round will be answered any more. Told twice, the worse news stays."""
        self._words[_FAILED] = max(self._words[_FAILED], _DIVERGED if diverged else _LOST)

    def count(self, sent_bytes: int) -> None:
        """The courier sent so many bytes in a step."""
        self._words[_STEPS] += 1
        self._words[_SENT] += sent_bytes

    @property
    def sent_bytes_per_step(self) -> float:
        """By this machine, on the average of the run."""
        return self._words[_SENT] / max(1, self._words[_STEPS])

    # --- sums --------------------------------------------------------------------------------------------------------

    def at_once(self, live: int) -> bool:
        """Whether the sums of all machines come here, instead of a sum that is finished."""
        return _at_once(self.seating, live)

    def far(self, live: int) -> list[tuple[Span, np.ndarray]]:
        """Where the sums of the other machines lie, if they come at once: (shards, row)."""
        others = [node for node in range(self.seating.count) if node != self.seating.node]
        spans = [span for node in others for span in self.seating.spans(live, node)]
        return list(zip(spans, self._far, strict=False))


def _at_once(seating: Seating, live: int) -> bool:
    # A machine's own sums would not be rounded in the same way.
    return not seating.rounded and at_once([len(seating.spans(live, node)) for node in range(seating.count)])


def _far_rows(seating: Seating, live: int) -> int:
    return sum(len(seating.spans(live, node)) for node in range(seating.count) if node != seating.node)
