"""CooperativeThreads: pieces of work that run in threads of their own, one at a time, and hand over where they must
meet.

The one idea: a thread is used as a place to stop in the middle of a call, of a module's forward or backward say, never
to compute two things at once. Whoever arrives at a meeting lets the next one run; the last to arrive does what all
waited for, once, and goes on.

    turns = CooperativeThreads(); turns.run([lambda: print(turns.combine(0, 1, sum)), lambda: print(turns.combine(0, 2,
    sum))])   # 3 and 3

The first piece runs in the caller's thread, so a single one needs no thread. The others' threads are kept for the next
run, for one takes a hundred microseconds to start and three to wake; they end with the `CooperativeThreads`. A piece
that fails ends all of them, at their next meeting, and its exception is the caller's. Pieces that do not meet at the
same places, in the same order, are refused: they would wait for each other for ever.

Limits: one run at a time; threads do not survive a fork, so fork before the first run.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar, final

from unisono.models.base import unequal_exchanges

T = TypeVar("T")


class Ended(BaseException):
    """Raised in a piece of work whose run has failed elsewhere; no `Exception`, lest a module's forward catch it."""


@final
class CooperativeThreads:
    """One meeting place for the pieces of a run; outside of a run a meeting has one participant."""

    def __init__(self) -> None:
        self._baton = _Baton()
        weakref.finalize(self, self._baton.close)

    @property
    def spent_s(self) -> float:
        """Seconds that went to handing over and to meetings, in all runs so far."""
        return self._baton.spent_s

    def run(
        self,
        works: Sequence[Callable[[], object]],
        keep: Callable[[int], None] = lambda number: None,
        back: Callable[[int], None] = lambda number: None,
    ) -> None:
        """All of `works`, to their end. keep(i): the i-th stops in the middle; back(i): it goes on."""
        self._baton.begin(works, keep, back)
        try:
            self._baton.perform(0)
            self._baton.finish()
        finally:
            error = self._baton.forget()
        if error is not None:
            raise error

    def combine(self, label: int, value: Any, finish: Callable[[list[Any]], T]) -> T:
        """finish(the values of all pieces, in their order), which one of them calls; all must give the same `label`."""
        return self._baton.combine(label, value, finish)


@final
class _Baton:
    """What the threads share. Only the one that has the baton touches anything, but for its own gate.

    Threads hold this and not the `CooperativeThreads`, so that they end when nobody holds that one any more.
    """

    def __init__(self) -> None:
        self._gates: list[Any] = [_shut()]
        self._threads: list[Thread] = []
        self._closed = False
        self.spent_s = self._given = 0.0
        self._error: BaseException | None = None
        self._works: Sequence[Callable[[], object]] = ()
        self._keep: Callable[[int], None] = _nothing
        self._back: Callable[[int], None] = _nothing
        self._done: list[bool] = []
        self._values: dict[int, Any] = {}
        self._result: Any = None
        self._current = self._holder = self._met = self._label = 0

    def begin(
        self, works: Sequence[Callable[[], object]], keep: Callable[[int], None], back: Callable[[int], None]
    ) -> None:
        self._works, self._keep, self._back = works, keep, back
        self._done = [False] * len(works)
        while len(self._threads) < len(works) - 1:
            self._gates.append(_shut())
            thread = Thread(target=self._live, args=[len(self._gates) - 1], daemon=True, name="unisono turns")
            self._threads.append(thread)
            thread.start()

    def forget(self) -> BaseException | None:
        """The run is over: nothing of it is held any more. What it failed with."""
        error, self._error = self._error, None
        self._works, self._done, self._result = (), [], None
        self._values.clear()
        self._keep = self._back = _nothing
        self._current = self._met = self._label = 0
        return error

    def perform(self, number: int) -> None:
        """One piece, by the thread that has the baton; then it is another one's."""
        self._current = number
        try:
            if self._error is None:
                self._works[number]()
        except Ended:
            pass
        except BaseException as error:  # the caller's to handle, whatever it is
            self._error = self._error or error
        self._done[number] = True
        following = self._after(number)
        if following is not None:
            self._give(following)
        elif number:
            self._give(0)

    def finish(self) -> None:
        """The caller waits for all others."""
        if not all(self._done):
            self._wait(0)

    def combine(self, label: int, value: Any, finish: Callable[[list[Any]], T]) -> T:
        if not self._works:
            return finish([value])
        if self._error is not None:
            raise Ended
        if self._values and label != self._label:
            raise unequal_exchanges()
        number, met, self._label = self._current, self._met, label
        self._values[number] = value
        if len(self._values) < len(self._works):
            following = self._after(number)
            if following is None:
                raise unequal_exchanges()
            self._keep(number)
            self._give(following)
            self._wait(number)
            if self._error is not None:
                raise Ended
            self._current = number
            self._back(number)
            self.spent_s += time.perf_counter() - self._given
            if self._met == met:  # it is this one's turn, though not everybody came
                raise unequal_exchanges()
        else:
            begun = time.perf_counter()
            self._result = finish([self._values[piece] for piece in range(len(self._works))])
            self._values.clear()
            self._met += 1
            self.spent_s += time.perf_counter() - begun
        result: T = self._result
        return result

    def close(self) -> None:
        self._closed = True
        for gate in self._gates[1:]:
            with suppress(RuntimeError):
                gate.release()
        for thread in self._threads:
            thread.join()

    def _live(self, number: int) -> None:
        while True:
            self._wait(number)
            if self._closed:
                return
            self.perform(number)

    def _after(self, number: int) -> int | None:
        """The next one in the circle that has not ended; None if there is no other."""
        count = len(self._done)
        others = ((number + step) % count for step in range(1, count))
        return next((other for other in others if not self._done[other]), None)

    def _give(self, number: int) -> None:
        self._given, self._holder = time.perf_counter(), number
        with suppress(RuntimeError):  # it is open already
            self._gates[number].release()

    def _wait(self, number: int) -> None:
        """An open gate only means to look again, so that a wait may be interrupted anywhere."""
        while self._holder != number and not self._closed:
            try:
                self._gates[number].acquire()
            except BaseException as error:  # a signal's, in the main thread: the others end before it is raised
                self._error = self._error or error


def _shut() -> Any:
    gate = Lock()
    gate.acquire()
    return gate


def _nothing(number: int) -> None:
    pass
