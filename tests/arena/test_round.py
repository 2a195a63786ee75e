"""Round: which half is done, by whom, how often; and what is raised when a wait ends in vain."""

import math
from collections.abc import Iterator

import pytest

from support.arena.acting_words import Acting, member_of, supervise
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member, MembershipChanged
from unisono.arena.membership.protocol import COMMIT, READY, View, pack
from unisono.arena.round import Round


class Errors:
    """Says what it was told."""

    def late(self, what, timeout_s, slots):
        return ValueError("late", what, timeout_s, list(slots))

    def lost(self, what, slots):
        return ValueError("lost", what, list(slots))


def round_of(size: int = 2, timeout_s: float = 60.0) -> tuple[Acting, Round, list[str]]:
    """Of rank 0; and a list to which every change of membership is added."""
    words, member = member_of(size, timeout_s=timeout_s)
    done: list[str] = []
    return words, Round(member, Errors(), lambda: done.append("change")), done


def come(words: Acting, position: int, phase: int, view: int = 1) -> None:
    """Rank 1 arrives."""
    protocol.arrive(words, 1, pack(view, position, phase))


def test_both_halves_are_done_once_in_a_quiet_round():
    words, round, done = round_of()
    come(words, 1, COMMIT)
    assert round.run(1, lambda: done.append("prepare"), lambda: done.append("finish")) is True
    assert done == ["prepare", "finish"]
    assert round.done == 1
    assert protocol.flag_of(words, 0) == pack(1, 1, COMMIT)


def test_a_half_is_done_again_when_the_membership_changes_in_its_work():
    words, round, done = round_of()
    supervise(words, 2, members=[0])

    def prepare() -> None:
        done.append("prepare")
        round.member.check_membership()

    round.run(1, prepare, lambda: done.append("finish"))
    assert done == ["prepare", "change", "prepare", "finish"]


def test_a_half_is_done_again_when_the_membership_changes_at_its_barrier():
    words, round, done = round_of()
    come(words, 1, READY)

    def finish() -> None:
        done.append("finish")
        if "change" not in done:
            supervise(words, 2, members=[0])  # rank 1 does not come to COMMIT

    round.run(1, lambda: done.append("prepare"), finish)
    assert done == ["prepare", "finish", "change", "finish"], "what exists is not made again"
    assert round.member.view.reached == READY


@pytest.mark.parametrize(
    ("reached", "expected"), [(COMMIT, []), (READY, ["finish"])], ids=["it is done", "its gradients exist"]
)
def test_who_joins_later_skips_what_is_done(reached, expected):
    words, _ = member_of(2)
    protocol.publish(words, View(2, (0,), 7, reached, (0, 1) if reached == READY else ()), 2)
    round, done = Round(Member(words, 0, 2, crowded=True, after=1), Errors()), []
    assert round.done == (7 if reached == COMMIT else 6)
    round.run(7, lambda: done.append("prepare"), lambda: done.append("finish"))
    assert done == expected


def test_who_made_what_exists_is_told_by_the_view_in_which_all_were_ready():
    words, round, _ = round_of()
    come(words, 1, READY)
    round.prepare(1, lambda: None)
    assert round.contributors(1) == (0, 1)
    supervise(words, 2, members=[0])
    assert round.changed()
    assert round.contributors(1) == (0, 1), "rank 1 is dead, and what it made is there"
    assert round.contributors(2) == (0,)


def test_the_body_of_a_loop_goes_on_with_what_is_yielded_after_a_change():
    words, round, done = round_of()

    def shards() -> Iterator[int]:
        yield from round.member.view.members
        if len(round.member.view.members) > 1:
            supervise(words, 2, members=[0])
            round.member.check_membership()

    assert list(round.prepare_each(1, shards)) == [0, 1, 0]
    assert done == ["change"]
    assert protocol.flag_of(words, 0) == pack(2, 1, READY)
    assert list(round.prepare_each(0, shards)) == [], "that round was done before"


def test_a_change_outside_a_round_is_told_once():
    words, round, done = round_of()
    assert round.changed() is False
    supervise(words, 2, members=[0])
    assert round.changed() is True
    round.run(1, lambda: done.append("prepare"), lambda: None)
    assert done == ["change", "prepare"]


def test_a_change_that_somebody_else_noticed_is_told_before_the_next_work():
    words, round, done = round_of()
    supervise(words, 2, members=[0])
    with pytest.raises(MembershipChanged):
        round.member.check_membership()
    round.run(1, lambda: done.append("prepare"), lambda: None)
    assert done == ["change", "prepare"]


def test_work_is_repeated_until_no_change_ends_it():
    words, round, done = round_of()
    supervise(words, 2, members=[0])

    def work() -> int:
        done.append("work")
        round.member.check_membership()
        return 7

    assert round.repeat(work) == 7
    assert done == ["work", "change", "work"]


def test_waits_that_end_in_vain_are_explained():
    words, round, _ = round_of(timeout_s=0.0)
    with pytest.raises(ValueError, match="late") as late:
        round.barrier(1, COMMIT)
    assert late.value.args == ("late", "commit", 0.0, [1])
    with pytest.raises(ValueError, match="late") as late:
        round.wait(lambda: False, "an exchange", [5])
    assert late.value.args == ("late", "an exchange", 0.0, [5])
    protocol.raise_freeze(words)
    with pytest.raises(ValueError, match="late") as late:
        round.changed()
    assert late.value.args == ("late", "a change of membership", 0.0, [])


def test_a_wait_for_one_that_has_ended_is_explained():
    _, round, _ = round_of()
    round.member.detect_exits(lambda: [1])
    with pytest.raises(ValueError, match="lost") as lost:
        round.barrier(1, READY)
    assert lost.value.args == ("lost", "gradients ready", [1])


def test_every_wait_is_timed_also_one_that_ends_in_vain():
    words, member = member_of(2)
    waits: list[tuple[float, float]] = []
    round = Round(member, Errors(), on_wait=lambda begun, ended: waits.append((begun, ended)))
    come(words, 1, READY)
    round.prepare(1, lambda: None)
    with pytest.raises(ValueError, match="late"):
        round.barrier(1, COMMIT)
    assert [begun <= ended < math.inf for begun, ended in waits] == [True, True]
