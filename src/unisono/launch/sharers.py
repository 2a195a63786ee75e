"""Sharers: the ranks of `unisono.run` that share a model, as the process that started them sees it.

The one idea: once a model is shared, the death of a rank is a change of membership, as under the supervisor of
`unisono train`; only, nobody is replaced, for a new process would not know what the user's code had done so far.

    sharers = Sharers(size); sharers.adopt(news); sharers.take_over(crew, lost, timeout_s) -> those who died meanwhile

Limits: a rank that waits in a collective of `world.comm` for one that died waits in vain, and ends with a time-out.
"""

import os
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, final

from unisono.arena import protocol
from unisono.arena.layout import Sections
from unisono.arena.segment import Segment
from unisono.errors import CommTimeout
from unisono.launch.crew import Crew, Ended
from unisono.strategies.shared import Shared

NEWS = "shared"
"""The key of what a rank reports when it has made the memory of a shared model."""
HALTS = "halts"
"""The key of what it reports instead, later, if its loop ends in good order when it is asked to."""


@final
class Sharers:
    """Of `size` ranks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._shared: Shared | None = None
        self.halts = False
        """Whether the ranks end in good order, and leave a snapshot, when asked to."""

    def hear(self, value: Any) -> bool:
        """Whether a report was meant for us: then the memory is mapped here, too."""
        if not (isinstance(value, dict) and value.keys() == {NEWS}):
            return False
        news = value[NEWS]
        if HALTS in news:
            self.halts = True
            return True
        sections = Sections.unpack(news["sections"])
        with closing(Segment.attach(os.open(f"/proc/{news['pid']}/fd/{news['fd']}", os.O_RDWR))) as segment:
            self._shared = Shared(segment, sections, self._size)  # its views keep the memory
        return True

    def ask_to_halt(self) -> None:
        """All ranks are to leave their loops after a step."""
        if self._shared is not None:
            self._shared.requests.ask_to_halt()

    @property
    def any(self) -> bool:
        """Whether a model is shared."""
        return self._shared is not None

    def take_over(self, crew: Crew, judge: Callable[[Ended], None], timeout_s: float) -> bool:
        """A new view without those who do not live; whether anybody is left. judge hears of those who end meanwhile."""
        assert self._shared is not None
        words, deadline, nap_s = self._shared.words, time.monotonic() + timeout_s, 0.00005
        old = protocol.current_view(words, self._size)
        assert old is not None
        protocol.raise_freeze(words)
        while True:
            members = [slot for slot in old.members if slot in crew.living]
            if protocol.all_still(words, members):
                break
            for one in crew.poll(0.0):
                judge(one)
            if time.monotonic() > deadline:
                missing = protocol.not_still(words, members)
                raise CommTimeout(
                    f"after the loss of a rank, ranks {missing} did not come to the end of a shard in {timeout_s:g} s",
                    missing=missing,
                    hint="is one of them in a collective of world.comm, or in an endless loop?",
                )
            time.sleep(nap_s)
            nap_s = min(1.2 * nap_s, 0.001)
        if not members:
            return False
        view = protocol.outcome(words, old, members)
        self._shared.restore(view)
        protocol.publish(words, view, self._size)
        return True
