"""The protocol of a node: who is a member, what has been reached, and who decides. Pure transitions over shared words.

A run is a sequence of *rounds* (a training step, an evaluation), numbered by a *position* that only grows. In every
round the members meet up to three times: READY (every gradient exists), NORMS (only where the update needs norms) and
COMMIT (every part of the update is done). The members are those of the current *view*, which the supervisor alone
writes: a row (members, position, what was reached there), written before its number is published.

When a member dies, or one joins, the supervisor raises *freeze*. A rank that waits asks first "has every member
arrived?" and only then "is there a freeze?". On a freeze it stands still: it says so and touches no flag until a newer
view exists. Once every living rank stands still no flag can change, and the supervisor decides, **once**, what was
reached: by all members of the old view, the dead included. **Ranks never decide**: were each survivor to judge by
itself, one could look before a late flag and one after it, and they would disagree about a commit.

    view = first_view(words, range(size), size); flag = pack(view.number, 1, READY); arrive(words, 0, flag)
    pc = WAITING; pc = advance(words, 0, view, flag, pc) ...           # until PASSED or RESUMED
    raise_freeze(words); all_still(words, living) and publish(words, outcome(words, view, living), size)

What is explored by the tests is this very code. Flags are one word, (view, position, phase), and only grow, so reading
those of all members one after the other and finding all of them high enough is as good as reading them at once; finding
one too low only means to look again. Every function touches few words, and each shared word has one writer at a time.

Limits: fewer than 2^20 views (a supervisor gives the run up before that), positions below 2^40 (an error).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, final

from unisono.arena.memory.fence import fence
from unisono.errors import UnisonoError

READY, NORMS, COMMIT = 1, 2, 3
PHASES = ("", "gradients ready", "norms ready", "commit")

WAITING, CHECKING, STILL, PASSED, RESUMED = range(5)
"""Where a rank is while it waits; the last two are ends: everybody came, or a new view tells where to go on."""

_LINE = 16  # words: 128 bytes apart, for processors fetch pairs of 64-byte lines
_VIEW, _FREEZE = 0, 1
_FLAG, _FROZEN = 0, 1
MARKS, PULSE = 2, 8
"""Words of a rank's line for those who build on the protocol: `undo.py` (six of them) and `member.py`."""
REQUESTS = 16
"""The second of the supervisor's two lines: `halt_and_snapshot_requests.py`."""
_POSITION_BITS, _PHASE_BITS = 40, 2
MOST_VIEWS = 1 << 20


class Words(Protocol):
    """Shared int64 words, zero at the start: a memoryview, or a list in the tests."""

    def __getitem__(self, at: int, /) -> int: ...

    def __setitem__(self, at: int, value: int, /) -> None: ...


@final
@dataclass(frozen=True)
class View:
    """One membership. `reached` at `position` is what all members of the view before had reached together."""

    number: int
    members: tuple[int, ...]
    position: int
    reached: int
    """COMMIT: the round is done, the next one is to be done from its start. READY: what the round needs exists, only
    its update is to be done again."""
    contributors: tuple[int, ...]
    """If READY: the members who made what exists, the dead included."""


def words_needed(size: int) -> int:
    """Two lines for the supervisor, one for each rank, and two rows for views."""
    return (2 + size) * _LINE + 2 * _row_words(size)


def line(slot: int) -> int:
    """Where the words of a rank start."""
    return (2 + slot) * _LINE


def pack(view: int, position: int, phase: int) -> int:
    """A flag; later ones are larger."""
    if position >> _POSITION_BITS:
        raise UnisonoError(
            f"round {position} cannot be counted: there are {1 << _POSITION_BITS} at most", hint="train fewer epochs"
        )
    return (view << _POSITION_BITS | position) << _PHASE_BITS | phase


def unpack(flag: int) -> tuple[int, int, int]:
    """(view, position, phase)."""
    rest, phase = flag >> _PHASE_BITS, flag & (1 << _PHASE_BITS) - 1
    return rest >> _POSITION_BITS, rest & (1 << _POSITION_BITS) - 1, phase


# --- ranks -----------------------------------------------------------------------------------------------------------


def arrive(words: Words, slot: int, flag: int) -> None:
    """Everything this rank did before is there for those who see the flag."""
    words[line(slot) + _FLAG] = flag


def arrived(words: Words, members: Collection[int], flag: int) -> bool:
    """Whether all `members` have come to `flag`, or are further."""
    for slot in members:  # noqa: SIM110  (asked many times a step: `all(...)` takes twice as long)
        if words[(2 + slot) * _LINE] < flag:
            return False
    return True


def missing(words: Words, members: Collection[int], flag: int) -> list[int]:
    """The members that have not come to `flag`."""
    return [slot for slot in members if words[line(slot) + _FLAG] < flag]


def freezing(words: Words, view: int) -> bool:
    """Whether the supervisor wants everybody to stand still."""
    return words[_FREEZE] > view


def stand_still(words: Words, slot: int) -> None:
    """From now on this rank touches no flag until a newer view is there."""
    if fence is not None:
        fence()
    words[line(slot) + _FROZEN] = words[_FREEZE]


def advance(words: Words, slot: int, view: View, flag: int, pc: int) -> int:
    """One small step of a rank that arrived at `flag` and waits; where it is then."""
    if pc == WAITING:
        return PASSED if arrived(words, view.members, flag) else CHECKING
    if pc == CHECKING:
        if not freezing(words, view.number):
            return WAITING
        stand_still(words, slot)
        return STILL
    if pc == STILL and words[_VIEW] > view.number:
        return RESUMED
    return pc


def current_view(words: Words, size: int) -> View | None:
    """The newest view, None before the first."""
    while number := words[_VIEW]:
        if fence is not None:
            fence()
        start = _row_start(number, size)
        position, reached = words[start], words[start + 1]
        members = tuple(slot for slot in range(size) if words[start + 2 + slot])
        contributors = tuple(slot for slot in range(size) if words[start + 2 + size + slot])
        if fence is not None:
            fence()
        # Nobody waits for a reader that is not a member yet: its row may have become that of the view after the next.
        if words[_VIEW] == number:
            return View(number, members, position, reached, contributors)
    return None


def contributors_of(words: Words, size: int, position: int) -> tuple[int, ...] | None:
    """For a reader that is no member: who made what round `position` needs, once all of it exists; None before that.

    Nobody waits for such a reader, so members may join between its looks, and flags of theirs are larger than those of
    the view that it has read: what it found counts if that view is still the newest.
    """
    view = current_view(words, size)
    if view is None:
        return None
    if view.position == position:
        return view.contributors if view.reached == READY else None
    if not arrived(words, view.members, pack(view.number, position, READY)):
        return None
    if fence is not None:
        fence()
    return view.members if words[_VIEW] == view.number else None


# --- the supervisor --------------------------------------------------------------------------------------------------


def raise_freeze(words: Words) -> None:
    """Asks everybody to stand still; again and again if need be."""
    words[_FREEZE] = words[_VIEW] + 1


def all_still(words: Words, living: Collection[int]) -> bool:
    """Whether all living members stand still."""
    still = all(words[line(slot) + _FROZEN] == words[_FREEZE] for slot in living)
    if fence is not None:
        fence()
    return still


def not_still(words: Words, living: Collection[int]) -> list[int]:
    """The living members that do not stand still yet."""
    return [slot for slot in living if words[line(slot) + _FROZEN] != words[_FREEZE]]


def flag_of(words: Words, slot: int) -> int:
    """Where a rank arrived last."""
    return words[line(slot) + _FLAG]


def outcome(words: Words, old: View, members: Collection[int]) -> View:
    """What all members of `old` reached, as the view that `members` begin with. Only while all of them stand still."""
    position, phase = min(_progress(words, slot, old) for slot in old.members)
    reached = READY if phase == NORMS else phase
    fresh = (position, reached) > (old.position, old.reached)
    contributors = () if reached != READY else old.members if fresh else old.contributors
    return View(old.number + 1, tuple(sorted(members)), position, reached, contributors)


def publish(words: Words, view: View, size: int) -> None:
    """The row first, its number last."""
    start = _row_start(view.number, size)
    words[start], words[start + 1] = view.position, view.reached
    for slot in range(size):
        words[start + 2 + slot] = slot in view.members
        words[start + 2 + size + slot] = slot in view.contributors
    words[_FREEZE] = max(words[_FREEZE], view.number)
    if fence is not None:
        fence()
    words[_VIEW] = view.number


def first_view(words: Words, members: Collection[int], size: int, position: int = 0) -> View:
    """The view that a run starts with: everything up to `position` is done."""
    view = View(1, tuple(sorted(members)), position, COMMIT, ())
    publish(words, view, size)
    return view


def _progress(words: Words, slot: int, view: View) -> tuple[int, int]:
    number, position, phase = unpack(words[line(slot) + _FLAG])
    # A member that has not arrived anywhere in this view is where the view began.
    return (position, phase) if number == view.number else (view.position, view.reached)


def _row_words(size: int) -> int:
    return -(-(2 + 2 * size) // _LINE) * _LINE


def _row_start(number: int, size: int) -> int:
    return (2 + size) * _LINE + number % 2 * _row_words(size)
