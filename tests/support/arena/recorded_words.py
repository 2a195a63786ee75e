"""Memory that notes what is written to it, in order, so that a death between any two writes can be acted out.

log = []; publish(Recording(words, WORDS, log), view, size)         # log: (WORDS, index, value), ...
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, final

WORDS, CELLS, TWINS = range(3)
"""What a write goes to."""
Write: TypeAlias = tuple[int, int, Any]


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
