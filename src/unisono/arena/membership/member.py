"""Member: one rank's side of the membership protocol: barriers, standing still in a freeze, entering the next view.

The one idea: `barrier` either returns, because every member came, or raises `MembershipChanged`. Then the new view
tells what is to be done again, with the work dealt anew among the new members.

    member = Member(words, slot=0, size=4, crowded=False, timeout_s=300)
    member.barrier(position, READY)

Limits: without a supervisor there is no freeze. Then a wait for a member that does not come ends in a TimeoutError (see
`late`), or in `PeerExited` where exits are detected (`detect_exits`).
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import CHECKING, PASSED, RESUMED, STILL, WAITING, View, Words, pack
from unisono.arena.memory.fence import fence
from unisono.arena.sync.waiting import SPINS, wait_until

_LOOK_S = 0.1
"""How often one who waits looks whether the others live."""
_BEAT_S = 0.1


class MembershipChanged(Exception):
    """The membership changed; `member.view` is the new one."""


class PeerExited(Exception):
    """Members that others wait for have ended, and nobody takes over; `slots` names them."""

    def __init__(self, slots: list[int]) -> None:
        super().__init__(slots)
        self.slots = slots


@final
class Member:
    """The rank in `slot` of `size`; waits until it is a member of a view later than number `after`."""

    def __init__(
        self, words: Words, slot: int, size: int, *, crowded: bool, timeout_s: float = math.inf, after: int = 0
    ) -> None:
        self.words, self.slot, self.size = words, slot, size
        self._spins = 0 if crowded else SPINS
        self.timeout_s = timeout_s
        self._pulse_at = protocol.line(slot) + protocol.PULSE
        self._pulse = words[self._pulse_at]
        self._flag = 0
        self._gone: Callable[[], list[int]] | None = None
        self._look_at = 0.0
        found = None

        def ready() -> bool:
            nonlocal found
            found = protocol.current_view(words, size)
            return found is not None and found.number > after and slot in found.members

        if not wait_until(ready, timeout_s) or found is None:
            raise TimeoutError
        self._enter(found)

    def _enter(self, view: View) -> None:
        self.view = view
        self.index = view.members.index(self.slot)
        self.count = len(view.members)
        self._others = tuple(slot for slot in view.members if slot != self.slot)

    def detect_exits(self, gone: Callable[[], list[int]]) -> None:
        """From now on who waits asks now and then who has ended, and waits no longer for those: `PeerExited`."""
        self._gone = gone

    @property
    def first(self) -> bool:
        """Whether this is the member that does what only one must do."""
        return self.index == 0

    def pulse(self) -> None:
        """A sign of work done (a shard, a block of an evaluation), for whoever looks for ranks that are stuck."""
        self._pulse += 1
        self.words[self._pulse_at] = self._pulse

    @contextmanager
    def pulsing(self) -> Iterator[None]:
        """For what may take long and does no work, such as a disk: a thread gives signs of life.

        A process that is stopped gives none. The block itself must not call `pulse`.
        """
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_S):
                self.pulse()

        thread = threading.Thread(target=beat, name="pulse", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def check_membership(self) -> None:
        """Between two pieces of work: raises `MembershipChanged` if the membership is changing."""
        if protocol.freezing(self.words, self.view.number):
            self._regroup(CHECKING)

    def barrier(self, position: int, phase: int) -> bool:
        """Arrives, and waits for all members; whether this one was the last to come."""
        words, others = self.words, self._others
        if fence is not None:
            fence()
        flag = self._flag = pack(self.view.number, position, phase)
        protocol.arrive(words, self.slot, flag)
        if protocol.arrived(words, others, flag):
            last = True
        else:
            last = False
            self._wait(flag)
        if fence is not None:
            fence()
        return last

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits between two meetings for something that is no member's to do: ends as `barrier` does."""

        def over() -> bool:
            self.pulse()  # it is not this rank that is stuck
            if ready() or protocol.freezing(self.words, self.view.number):
                return True
            if self._gone is not None and time.monotonic() > self._look_at:
                self._look_at = time.monotonic() + _LOOK_S
                if ended := self._gone():
                    raise PeerExited(ended)
            return False

        if not wait_until(over, self.timeout_s):
            raise TimeoutError
        if not ready():
            self.check_membership()
        if fence is not None:
            fence()

    def late(self) -> list[int]:
        """Whom this member waits for, or waited for in vain."""
        return protocol.missing(self.words, self._others, self._flag)

    def _wait(self, flag: int) -> None:
        words, others = self.words, self._others
        for _ in range(self._spins):
            if protocol.arrived(words, others, flag):
                return
        # One yield inline: in a crowded world the rank we wait for is most often the next to run.
        os.sched_yield()
        pc = WAITING

        def ready() -> bool:
            nonlocal pc
            pc = protocol.advance(words, self.slot, self.view, flag, pc)
            if pc == CHECKING:
                pc = protocol.advance(words, self.slot, self.view, flag, pc)
            if pc in (PASSED, STILL):
                return True
            self._look()
            return False

        if not wait_until(ready, self.timeout_s):
            raise TimeoutError
        if pc == STILL:
            self._regroup(STILL)

    def _look(self) -> None:
        if self._gone is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        # In this order: who arrived and then ended is not missed.
        ended = self._gone()
        if ended and (missed := [slot for slot in self.late() if slot in ended]):
            raise PeerExited(missed)

    def _regroup(self, pc: int) -> None:
        def told() -> bool:
            nonlocal pc
            pc = protocol.advance(self.words, self.slot, self.view, self._flag, pc)
            return pc == RESUMED

        begun = time.monotonic()
        # No limit of ours: the supervisor lives, or this rank dies with it.
        while not wait_until(told, min(60.0, self.timeout_s)):
            if time.monotonic() - begun > self.timeout_s:
                raise TimeoutError
        view = protocol.current_view(self.words, self.size)
        assert view is not None
        self._enter(view)
        raise MembershipChanged


def pulse_of(words: Words, slot: int) -> int:
    """How much work a rank has shown, counted since the run began."""
    return words[protocol.line(slot) + protocol.PULSE]
