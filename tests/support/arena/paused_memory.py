"""Memory that is watched: each access to a word, and each write to a vector, is a point of the scheduler.

The one idea: `ArenaState` asks a segment for words and arrays and does not care where they lie. Words pause before
every load and store; arrays (a subclass of NumPy's) before every write, and in the middle of a copy. Code that works
on them is not changed.

    memory = PausedMemory(sections.nbytes); shared = ArenaState(memory, sections, size); memory.scheduler = scheduler

Limits: reads of arrays are no points (what is read was written before a point of the writer, or after it); writes of
fewer than `LEAST` elements are none either. Signs of life (`Member.pulse`) decide nothing here, and are none.
"""

from typing import Any, final

import numpy as np

from unisono.arena.membership import protocol
from unisono.arena.memory.segment import PAGE

from support.arena.scheduler import Scheduler  # isort: skip

LEAST = 100
OTHER_WORDS = 10_000
"""What points call the first of the words that are not the protocol's."""
_LINE = protocol.line(1) - protocol.line(0)


class PausedArray(np.ndarray):
    """Made by `PausedMemory.array`; its slices are such arrays, too."""

    memory: "PausedMemory | None" = None

    def __array_finalize__(self, origin: Any) -> None:
        self.memory = getattr(origin, "memory", None)

    def __setitem__(self, key: Any, value: Any) -> None:
        plain = self.view(np.ndarray)
        target = plain[key]
        if self.memory is None or not isinstance(target, np.ndarray) or target.size < LEAST:
            plain[key] = value
            return
        values, half = np.broadcast_to(value, target.shape), len(target) // 2
        self.memory.pause("copies the first half")
        target[:half] = values[:half]
        self.memory.pause("copies the second half")
        target[half:] = values[half:]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [_plain(value) for value in inputs]
        out = options.get("out")
        if out is None:
            return getattr(ufunc, method)(*plain, **options)
        for target in out:
            if isinstance(target, PausedArray) and target.memory is not None and target.size >= LEAST:
                target.memory.pause(f"writes ({ufunc.__name__})")
        options["out"] = tuple(map(_plain, out))
        getattr(ufunc, method)(*plain, **options)
        return out[0]


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, PausedArray) else value


@final
class PausedWords:
    """As a memoryview of int64 words."""

    def __init__(self, memory: "PausedMemory", words: memoryview, start: int = 0) -> None:
        """start: what points call the first word."""
        self._memory, self._words, self._start = memory, words, start
        slots = range(0 if start else len(words) // _LINE)
        self._quiet = frozenset(protocol.line(slot) + protocol.PULSE for slot in slots)

    def __getitem__(self, at: int) -> int:
        if at not in self._quiet:
            self._memory.pause("reads", self._start + at)
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        if at not in self._quiet:
            self._memory.pause("writes", self._start + at)
            if self._words[at] != value:
                self._memory.note_change()
        self._words[at] = value


@final
class PausedMemory:
    """A `Segment` in plain memory. Without a `scheduler` there are no points."""

    def __init__(self, nbytes: int) -> None:
        room = np.zeros(nbytes + PAGE, np.uint8)
        first = -room.ctypes.data % PAGE
        self._bytes = room[first : first + nbytes]
        self.scheduler: Scheduler | None = None

    def words(self, offset: int, count: int) -> PausedWords:
        return PausedWords(self, memoryview(self._bytes)[offset : offset + 8 * count].cast("q"))

    def paused(self, words: memoryview) -> PausedWords:
        """Words that lie in an array of this memory."""
        return PausedWords(self, words, OTHER_WORDS)

    def array(self, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        found = np.frombuffer(self._bytes, dtype, count, offset).view(PausedArray)
        found.memory = self
        return found

    def pause(self, what: str, at: int = -1) -> None:
        if self.scheduler is not None:
            self.scheduler.pause(what, at)

    def note_change(self) -> None:
        if self.scheduler is not None:
            self.scheduler.note_change()

    def take(self) -> np.ndarray:
        """A copy of all of it."""
        return self._bytes.copy()

    def put_back(self, copy: np.ndarray) -> None:
        self._bytes[...] = copy
