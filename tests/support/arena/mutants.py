"""Faults that are put into the real code on purpose, one at a time: the interleavings must show each of them.

The one idea: a mutant is a context in which one function of unisono is another one, or has another text (`edited`).

    with MUTANTS["nothing is kept for undoing"](setting): found = setting.run({62: KILL})

`edited` fails if the text is no longer there: then somebody has to say what the fault is now. A mutant must not patch
anything while it runs: actors would leave their patches in another order than they came.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias
from unittest.mock import patch

from support.arena.supervised_run import Setting
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member, MembershipChanged
from unisono.arena.membership.protocol import COMMIT, READY, View, Words, pack
from unisono.arena.membership.undo import Undo
from unisono.arena.round import Round
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.arena.update import UpdateStep
from unisono.supervise.supervisor import Supervisor

Mutant: TypeAlias = Callable[[Setting], AbstractContextManager[Any]]


def patched(target: object, name: str, new: Any) -> Mutant:
    return lambda setting: patch.object(target, name, new)


def edited(owner: type, name: str, *edits: tuple[str, str]) -> Mutant:
    """A method with another text."""

    @contextmanager
    def mutate(setting: Setting) -> Iterator[None]:
        text = textwrap.dedent(inspect.getsource(getattr(owner, name)))
        for old, new in edits:
            assert text.count(old) == 1, f"{owner.__name__}.{name} has not once {old!r}: what is the fault now?"
            text = text.replace(old, new)
        space: dict[str, Any] = {}
        exec(compile(text, f"<{name} with a fault>", "exec"), vars(sys.modules[owner.__module__]), space)
        with patch.object(owner, name, space[name]):
            yield

    return mutate


# --- the supervisor --------------------------------------------------------------------------------------------------

_outcome, _publish = protocol.outcome, protocol.publish


def of_the_living(words: Words, old: View, members: Collection[int]) -> View:
    living = tuple(slot for slot in old.members if slot in members) or old.members
    found = _outcome(words, replace(old, members=living), members)
    return replace(found, contributors=old.members if found.contributors else ())


def dealt_anew(words: Words, old: View, members: Collection[int]) -> View:
    found = _outcome(words, old, members)
    return replace(found, contributors=found.members) if found.reached == READY else found


def number_first(words: Words, view: View, size: int) -> None:
    words[0] = view.number
    _publish(words, view, size)


# --- ranks -----------------------------------------------------------------------------------------------------------

_meet, _regroup, _keep, _take_chunk = Member.barrier, Member._regroup, Undo.keep, UpdateStep.take_chunk
_advance, _current_view = protocol.advance, protocol.current_view


def commits_alone(self: Member, position: int, phase: int) -> bool:
    try:
        return _meet(self, position, phase)
    except MembershipChanged:
        if phase != COMMIT:
            raise
        return False


def judges_by_itself(self: Member, pc: int) -> None:
    judged = _outcome(self.words, self.view, self.view.members)
    try:
        _regroup(self, pc)
    except MembershipChanged:
        self.view = replace(
            self.view, position=judged.position, reached=judged.reached, contributors=judged.contributors
        )
        raise


def goes_on(words: Words, slot: int, view: View, flag: int, pc: int) -> int:
    pc = _advance(words, slot, view, flag, pc)
    return protocol.PASSED if pc == protocol.STILL and protocol.arrived(words, view.members, flag) else pc


def row_once(words: Words, size: int) -> View | None:
    number = words[0]

    class Row:
        def __getitem__(self, at: int) -> int:
            return number if at == 0 else words[at]

    return _current_view(Row(), size) if number else None  # type: ignore[arg-type]


def contributors_of_two_views(words: Words, size: int, position: int) -> tuple[int, ...] | None:
    view = protocol.current_view(words, size)
    if view is None or view.position == position:
        return view.contributors if view is not None and view.reached == READY else None
    return view.members if protocol.arrived(words, view.members, pack(view.number, position, READY)) else None


def marked_first(self: Undo, slot: int, position: int, low: int, high: int) -> None:
    self._words[protocol.line(slot) + self._at] = position
    _keep(self, slot, position, low, high)


def first_chunk(self: UpdateStep) -> None:
    if not hasattr(self, "low"):
        _take_chunk(self)


def done_already(self: SyncArena) -> tuple[int, bool]:
    return self._member.view.position, True


def one_late(self: SyncArena) -> tuple[int, bool]:
    view = self._member.view
    return view.position + (view.number > 1), view.reached == COMMIT


_KEEP = "shared.undo.keep(slot, position, self.low, self.high)"

MUTANTS: dict[str, Mutant] = {
    "nothing is kept for undoing": patched(Undo, "keep", lambda *given: None),
    "the mark is set before the old values are kept": patched(Undo, "keep", marked_first),
    "old values are kept after the update": edited(
        UpdateStep,
        "update",
        (_KEEP, "pass"),
        ("self._update_buffers(position, live)", f"self._update_buffers(position, live)\n    {_KEEP}"),
    ),
    "nothing is taken back": edited(Supervisor, "_reform", ("self._config.restore(view)", "pass")),
    "the view is published before the update is taken back": edited(
        Supervisor,
        "_reform",
        ("self._config.restore(view)", "pass"),
        (
            "protocol.publish(self._words, view, self._size)",
            "protocol.publish(self._words, view, self._size); self._config.restore(view)",
        ),
    ),
    "the supervisor decides before all stand still": patched(protocol, "all_still", lambda words, living: True),
    "what was reached is decided from the living alone": patched(protocol, "outcome", of_the_living),
    "the new members are published as contributors": patched(protocol, "outcome", dealt_anew),
    "the number of a view is published before its row": patched(protocol, "publish", number_first),
    "no new view once somebody has finished": edited(Supervisor, "_reform", ("if over and not members:", "if over:")),
    "each survivor decides by itself": patched(Member, "_regroup", judges_by_itself),
    "a rank that is regrouped at a commit goes on": patched(Member, "barrier", commits_alone),
    "a rank goes on after it said that it stands still": patched(protocol, "advance", goes_on),
    "the chunk of the old view is updated in the new one": patched(UpdateStep, "take_chunk", first_chunk),
    "gradients are summed as dealt among the new members": patched(
        Round, "contributors", lambda self, position: self.member.view.members
    ),
    "a half of a round is not done again": edited(Round, "_half", ("continue", "return False")),
    "a half that is done is done again": edited(Round, "_passed", (">= (position, phase)", "> (position, phase)")),
    "what depends on the members is not made anew": edited(Round, "_follow", ("self._on_change()", "pass")),
    "a replacement takes the round that it joins for done": patched(SyncArena, "at", property(done_already)),
    "a replacement begins one round late": patched(SyncArena, "at", property(one_late)),
    "the spare copy is made of a later round": patched(UpdateStep, "copy_chunk", lambda self, position: None),
}

BUFFERS_NOT_KEPT = edited(
    UpdateStep, "_update_buffers", ("shared.buffers_undo.keep(self._member.slot, position, 0, len(buffers))", "pass")
)
"""Does not show while somebody is left: new buffers do not depend on old ones."""
