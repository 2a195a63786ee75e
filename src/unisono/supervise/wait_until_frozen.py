"""Re-forming: from one membership to the next, in the process that watches the ranks. First everybody stands still.

The one idea: what was reached can be decided only while nobody moves, and ranks may die while one waits for that. So
who is waited for is asked anew at every look, and whoever does not come to rest in time is somebody's to judge.

    members = wait_until_frozen(words, FreezeRequest(staying, listen, lambda: 60.0, end_them))
    view = protocol.outcome(words, old, members); restore(view); protocol.publish(words, view, size)

Limits: standing still is a word in shared memory, of which no descriptor tells; so this looks again and again, after
naps of at most a millisecond.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import Words
from unisono.arena.sync.waiting import wait_until

_PIECES = 5


@final
@dataclass(frozen=True)
class FreezeRequest:
    """Who is to stand still, and what becomes of those who do not."""

    staying: Callable[[], list[int] | None]
    """The members that live. None: nobody does, but somebody is on his way, and is waited for."""
    listen: Callable[[], bool]
    """Hears who ended; whether anybody did."""
    patience_s: Callable[[], float]
    late: Callable[[list[int] | None], None]
    """Told of those who do not stand still each time that patience is at an end; None: nobody has come yet."""


def wait_until_frozen(words: Words, roll: FreezeRequest) -> list[int]:
    """Asks everybody to stand still; the living members, once all of them do."""
    members: list[int] | None = None

    def at_rest() -> bool:
        nonlocal members
        while True:
            members = roll.staying()
            if members is not None and protocol.all_still(words, members):
                return True
            if not roll.listen():
                return False

    protocol.raise_freeze(words)
    # In pieces: a machine that stood still itself for a while has not been patient for that long.
    while not any(wait_until(at_rest, roll.patience_s() / _PIECES) for _ in range(_PIECES)):
        roll.late(None if members is None else protocol.not_still(words, members))
    assert members is not None
    return members
