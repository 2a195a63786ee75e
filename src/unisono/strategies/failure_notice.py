"""FailureNotice: why a rank, or a machine, leaves the others, which would else take it for lost.

The one idea: a run that lost a rank can be resumed, so a batch system queues it again; a run that failed would fail
again. So a rank that leaves because of an error first writes the reason and its exit code: in the arena, for the ranks
of its machine; its exchanger sends it to the other machines (`machines/machine_exchange.py`). Then all ranks leave with
that reason and that code.

>>> notices = FailureNotices(np.zeros((3, ROOM_BYTES), np.uint8))
>>> notices.write(1, FailureNotice("rank 1: no label", 1)); notices.own
FailureNotice(text='rank 1: no label', code=1, crashes=0, node=-1)

Limits: the middle of a long text is left out. A rank that is killed writes nothing, and counts as lost.
"""

from dataclasses import dataclass
from typing import Self, final

import numpy as np

from unisono.arena.memory.fence import fence
from unisono.errors import RESUME_ME, NodeLost, OtherFailed, UnisonoError
from unisono.os_limits import as_shortage
from unisono.user_code.tracebacks import own_traceback, where

ROOM_BYTES = 1600
"""A short message of every transport."""
_COUNT_BYTES = 8
_HEAD_BYTES, _GAP = 200, b" [...] "
"""What is kept of the beginning of a text that is too long, which names a machine and a rank; what stands for the rest.
"""


@final
@dataclass(frozen=True)
class FailureNotice:
    """What is said."""

    text: str
    code: int
    """The exit code; 75: nothing failed that would fail again, and what was reached is to be saved."""
    crashes: int = 0
    """How many ranks ended by themselves in the round that was to be done: see `supervise/supervisor.py`."""
    node: int = -1
    """The machine that leaves, once it is told to others."""

    @classmethod
    def of(cls, error: Exception, who: str) -> Self:
        """Of whoever leaves with that error."""
        error = as_shortage(error) or error
        if isinstance(error, UnisonoError):
            return cls(f"{who}: {error}{where(error)}", error.exit_code)
        return cls(f"{who}: {own_traceback(error).rstrip()}", UnisonoError.exit_code)

    @property
    def failed(self) -> bool:
        """Whether nothing is to be saved, for it would end in the same way."""
        return self.code != RESUME_ME

    def error(self, *, first_hand: bool) -> UnisonoError:
        """What those leave with who have heard it. first_hand: nobody on their machine has said it yet."""
        if self.failed:
            return OtherFailed(self.text, exit_code=self.code, first_hand=first_hand)
        nodes = [self.node] if self.node >= 0 else []
        return NodeLost(self.text, first_hand=first_hand, nodes=nodes, crashes=self.crashes)

    def packed(self) -> bytes:
        """At most as much as a row of `FailureNotices` takes."""
        head = b"%d %d %d " % (self.code, self.crashes, self.node)
        text, room = self.text.encode(), ROOM_BYTES - _COUNT_BYTES - len(head)
        if len(text) > room:
            text = text[:_HEAD_BYTES] + _GAP + text[_HEAD_BYTES + len(_GAP) - room :]
        return head + text

    @classmethod
    def unpacked(cls, words: bytes) -> Self:
        """What was `packed`."""
        code, crashes, node, text = words.split(b" ", 3)
        return cls(text.decode(errors="ignore"), int(code), int(crashes), int(node))


@final
class FailureNotices:
    """Those in an arena: rows of bytes, one for each rank and one for what comes from other machines."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def write(self, slot: int, failure_notice: FailureNotice) -> None:
        """Of the rank in that slot, before it leaves."""
        words, row = failure_notice.packed(), self._rows[slot]
        row[_COUNT_BYTES : _COUNT_BYTES + len(words)] = np.frombuffer(words, np.uint8)
        if fence is not None:
            fence()
        row[:_COUNT_BYTES].view(np.int64)[0] = len(words)

    def pass_on(self, failure_notice: FailureNotice) -> None:
        """It came from another machine."""
        self.write(len(self._rows) - 1, failure_notice)

    @property
    def slots(self) -> list[int]:
        """The ranks of this machine that have said something, by their slots."""
        return [slot for slot, row in enumerate(self._rows[:-1]) if row[:_COUNT_BYTES].view(np.int64)[0]]

    @property
    def own(self) -> FailureNotice | None:
        """What a rank of this machine has said."""
        return next(filter(None, map(self._read, self._rows[:-1])), None)

    @property
    def first(self) -> FailureNotice | None:
        """What anybody has said."""
        return self.own or self._read(self._rows[-1])

    @staticmethod
    def _read(row: np.ndarray) -> FailureNotice | None:
        count = int(row[:_COUNT_BYTES].view(np.int64)[0])
        return FailureNotice.unpacked(row[_COUNT_BYTES : _COUNT_BYTES + count].tobytes()) if count else None
