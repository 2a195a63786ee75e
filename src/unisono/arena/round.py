"""Round: how a member takes part in a round, however often the membership changes in it.

The one idea: a round has two halves. `prepare` makes what the round needs and ends at the barrier READY; `finish` does
the update and ends at the barrier COMMIT. If the membership changes, the half is done again by the members of the new
view, unless that view says that all had reached its barrier. This is the only place that handles `MembershipChanged`:
everybody else gives work that may be done again.

    round = Round(member, errors, on_change=owner.take_chunk)
    round.run(position, prepare, finish)                            # both halves
    yield from round.prepare_each(position, shards)                 # the same in two steps, where the user's own loop
    round.finish(position, update)                                  # is the work of the first half

Who joins later skips what is done: its first view tells. A half whose barrier one member has passed is never done again
as a whole: all had arrived, and the supervisor sees that. So `finish` never has to go back to `prepare`.

`on_change` is called once for each new view, before any work of that view: there what depends on the members (chunks,
shares) is made anew.

A wait that ends in vain raises what `errors` makes of it; nothing below this layer knows how users are told.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, final

from unisono.arena.membership.member import Member, MembershipChanged, PeerExited
from unisono.arena.membership.protocol import COMMIT, PHASES, READY

T = TypeVar("T")


class WaitErrors(Protocol):
    """Makes the errors of waits that ended in vain. `slots`: the members that were waited for."""

    def late(self, what: str, timeout_s: float, slots: Sequence[int]) -> Exception: ...

    def lost(self, what: str, slots: Sequence[int]) -> Exception: ...


@final
class Round:
    """One member's side of every round; the rounds are told apart by their position."""

    def __init__(
        self,
        member: Member,
        errors: WaitErrors,
        on_change: Callable[[], None] = lambda: None,
        on_wait: Callable[[float, float], None] = lambda begun, ended: None,
    ) -> None:
        """on_wait is called after every barrier, with times of `time.perf_counter`."""
        self.member = member
        self._errors, self._on_change, self._on_wait = errors, on_change, on_wait
        self._view = view = member.view
        self.done = view.position if view.reached == COMMIT else view.position - 1
        """The last round that is done."""

    # --- halves ------------------------------------------------------------------------------------------------------

    def run(self, position: int, prepare: Callable[[], None], finish: Callable[[], None]) -> bool:
        """The whole round; whether this member was the last to be ready."""
        last = self._half(position, READY, prepare)
        self.finish(position, finish)
        return last

    def prepare(self, position: int, work: Callable[[], None]) -> None:
        """The first half: returns when every member has done its part."""
        self._half(position, READY, work)

    def prepare_each(self, position: int, work: Callable[[], Iterator[T]]) -> Iterator[T]:
        """The first half, where work() yields things that the caller's own loop does something with."""
        while not self._passed(position, READY):
            try:
                yield from work()
                self.barrier(position, READY)
                return
            except MembershipChanged:
                continue

    def finish(self, position: int, work: Callable[[], None]) -> None:
        """The second half; then the round is done."""
        self._half(position, COMMIT, work)
        self.done = position

    def _half(self, position: int, phase: int, work: Callable[[], None]) -> bool:
        member = self.member
        # The first condition is the usual case, asked without a call: some rounds take a few microseconds.
        while (self._view is member.view and self._view.position < position) or not self._passed(position, phase):
            try:
                work()
                return self.barrier(position, phase)
            except MembershipChanged:
                continue
        return False

    def _passed(self, position: int, phase: int) -> bool:
        """Whether all members had come to that barrier before the present view began."""
        self._follow()
        return (self._view.position, self._view.reached) >= (position, phase)

    def _follow(self) -> None:
        """Acts on the present view, if it is new."""
        if self.member.view is not self._view:
            self._view = self.member.view
            self._on_change()

    def contributors(self, position: int) -> tuple[int, ...]:
        """After READY: the members who made what the round needs; some may be dead since."""
        view = self.member.view
        return view.contributors if view.position == position else view.members

    # --- waits -------------------------------------------------------------------------------------------------------

    def barrier(self, position: int, phase: int) -> bool:
        """Waits for all members; whether this one was the last to come. For barriers inside a half."""
        begun = time.perf_counter()
        try:
            return self.member.barrier(position, phase)
        except (TimeoutError, PeerExited) as error:
            raise self._explain(error, PHASES[phase], self.member.late()) from None
        finally:
            self._on_wait(begun, time.perf_counter())

    def wait(self, ready: Callable[[], bool], what: str, slots: Sequence[int]) -> None:
        """Waits inside a half for something that those in `slots` are to bring."""
        try:
            self.member.wait(ready)
        except (TimeoutError, PeerExited) as error:
            raise self._explain(error, what, slots) from None

    def _explain(self, error: TimeoutError | PeerExited, what: str, slots: Sequence[int]) -> Exception:
        if isinstance(error, PeerExited):
            return self._errors.lost(what, error.slots)
        return self._errors.late(what, self.member.timeout_s, slots)

    # --- outside rounds ----------------------------------------------------------------------------------------------

    def changed(self) -> bool:
        """Stands still while the membership changes; whether it did."""
        try:
            self.member.check_membership()
        except MembershipChanged:
            self._follow()
            return True
        except TimeoutError as error:
            raise self._explain(error, "a change of membership", ()) from None
        return False

    def repeat(self, work: Callable[[], T]) -> T:
        """work(), again whenever the membership changes in it."""
        while True:
            try:
                return work()
            except MembershipChanged:
                self._follow()
