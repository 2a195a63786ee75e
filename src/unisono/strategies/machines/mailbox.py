"""MachineMailbox: the part of a machine's arena that holds what ranks send to other machines and receive from them.

The one idea: one process of each machine, the *exchanger* (`machine_exchange.py`), talks to the others; ranks work on
the arena alone. The first member writes down what the round is about, all pass READY, the exchanger exchanges, marks
the round as answered, and all continue. The answer lies in the arena, so a round can be done again without a second
exchange.

    mailbox.order(position, STEP, live, due=False)       # the first member, before READY
    remote.fetch(round, mailbox, position)               # every rank, after READY
    mailbox.answer(position)                             # the exchanger

`RemoteView` is what a rank knows of the other machines: its number among all ranks, and how it waits for an answer.
Strategies work on the arena of one machine and ask nothing else; `ONE_MACHINE` is the answer where there is one only.

    remote = RemoteView(machine_layout, hosts, exchanger)    # exchanger: only on a rank that also is the exchanger

Who may write what: orders as gradients; all other arrays are the exchanger's from READY until it answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from unisono.arena.memory.fence import fence
from unisono.arena.reduction_tree import Span
from unisono.arena.round import Round
from unisono.errors import Diverged, NodeLost
from unisono.strategies.machines.machine_layout import MachineLayout, at_once

if TYPE_CHECKING:
    from unisono.strategies.machines.machine_exchange import Exchanger

STEP, EVALUATION = 1, 2
"""Kinds of rounds."""
_AT, _KIND, _NUMBER, _DUE, _ANSWERED, _FAILED, _STEPS, _SENT = 0, 1, 2, 3, 16, 17, 18, 19
_WORDS = 32
_LOST, _DIVERGED = 1, 2

Table: TypeAlias = dict[str, tuple[int | tuple[int, ...], np.dtype]]


def mailbox_sections(machine_layout: MachineLayout | None, lives: Sequence[int], widths: tuple[int, int, int]) -> Table:
    """What a mailbox needs in the arena. widths: of the vector, padded; parameters; numbers a rank counts."""
    length, parameters, counted = widths
    far = whole = 0
    several = machine_layout is not None and machine_layout.count > 1
    if machine_layout is not None and several:
        direct = [live for live in lives if _at_once(machine_layout, live)]
        far = max((_far_rows(machine_layout, live) for live in direct), default=0)
        whole = length if len(direct) < len(lives) else 0
    size = machine_layout.size if machine_layout is not None and several else 0
    f4, f8 = np.dtype(np.float32), np.dtype(np.float64)
    return {
        "mailbox": (_WORDS if several else 0, np.dtype(np.int64)),
        "far sums": ((far, length), f4),
        "whole": (whole, f4),
        "world stats": ((size, counted), f8),
        "world shares": ((size + 1 if several else 0, parameters, 3), f8),
    }


@final
class MachineMailbox:
    """One process's hold on it; `used`: elements of the vector that are not padding."""

    def __init__(self, array: Callable[[str], np.ndarray], machine_layout: MachineLayout, used: int) -> None:
        self.machine_layout, self.used = machine_layout, used
        self._words = array("mailbox").data
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
        """The exchanger sent so many bytes in a step."""
        self._words[_STEPS] += 1
        self._words[_SENT] += sent_bytes

    @property
    def sent_bytes_per_step(self) -> float:
        """By this machine, on the average of the run."""
        return self._words[_SENT] / max(1, self._words[_STEPS])

    # --- sums --------------------------------------------------------------------------------------------------------

    def at_once(self, live: int) -> bool:
        """Whether the sums of all machines come here, instead of a sum that is finished."""
        return _at_once(self.machine_layout, live)

    def far(self, live: int) -> list[tuple[Span, np.ndarray]]:
        """Where the sums of the other machines lie, if they come at once: (shards, row)."""
        others = [node for node in range(self.machine_layout.count) if node != self.machine_layout.node]
        spans = [span for node in others for span in self.machine_layout.spans(live, node)]
        return list(zip(spans, self._far, strict=False))


def _at_once(machine_layout: MachineLayout, live: int) -> bool:
    # A machine's own sums would not be rounded in the same way.
    return not machine_layout.rounded and at_once(
        [len(machine_layout.spans(live, node)) for node in range(machine_layout.count)]
    )


def _far_rows(machine_layout: MachineLayout, live: int) -> int:
    return sum(
        len(machine_layout.spans(live, node)) for node in range(machine_layout.count) if node != machine_layout.node
    )


@final
@dataclass(frozen=True)
class RemoteView:
    """As one rank sees it."""

    machine_layout: MachineLayout | None = None
    hosts: tuple[str, ...] = ()
    """Where each rank of all machines runs."""
    exchanger: "Exchanger | None" = None

    @property
    def size(self) -> int:
        """Ranks of all machines; 0: there is one machine, whose arena has the number."""
        return 0 if self.machine_layout is None else self.machine_layout.size

    def rank_of(self, slot: int) -> int:
        """The number of a rank of this machine among all."""
        return slot if self.machine_layout is None else self.machine_layout.ranks[slot]

    def close(self) -> None:
        """The others are not needed any more."""
        if self.exchanger is not None:
            self.exchanger.close()

    def fetch(self, round: Round, mailbox: MachineMailbox, position: int) -> None:
        """Returns when the mailbox has what round `position` needs; `NodeLost` or `Diverged` if it will never come."""
        if self.exchanger is not None:
            self.exchanger.serve(position, round.contributors(position))
            return
        exchanger = 0  # of the ranks of a machine, the first one talks to the others
        round.wait(lambda: mailbox.answered(position) or mailbox.failed, "an exchange with other machines", [exchanger])
        if mailbox.diverged:
            raise Diverged("the machines have different parameters; nothing was saved")
        if not mailbox.answered(position):
            raise NodeLost("another machine was lost", first_hand=False)


ONE_MACHINE = RemoteView()
