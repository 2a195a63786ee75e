"""Words of an arena with one real member, and somebody who acts for the others whenever it writes or reads a word.

words, member = member_of(2); supervise(words, 2, members=[0])    # rank 1 is lost as soon as rank 0 waits
"""

from collections.abc import Callable

from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member


class Acting(list):
    """Words; `on_write(index)` and `on_read(index)` are called after a write and before a read."""

    def __init__(self, size: int) -> None:
        super().__init__([0] * protocol.words_needed(size))
        self.on_write: Callable[[int], None] = lambda at: None
        self.on_read: Callable[[int], None] = lambda at: None

    def __setitem__(self, at, value) -> None:
        super().__setitem__(at, value)
        self.on_write(at)

    def __getitem__(self, at):
        self.on_read(at)
        return super().__getitem__(at)


def member_of(size: int, slot: int = 0, timeout_s: float = 0.0) -> tuple[Acting, Member]:
    words = Acting(size)
    protocol.first_view(words, range(size), size)
    return words, Member(words, slot, size, crowded=True, timeout_s=timeout_s)


def supervise(words: Acting, size: int, members: list[int]) -> None:
    """As soon as rank 0 stands still, there is a new view."""
    old = protocol.current_view(words, size)

    def decide(at: int) -> None:
        if protocol.all_still(words, [0]):
            words.on_write = lambda at: None
            protocol.publish(words, protocol.outcome(words, old, members), size)

    protocol.raise_freeze(words)
    words.on_write = decide
