"""Member: one rank's side, alone, with somebody who acts for the others whenever it writes or reads a word."""

import threading

import pytest

from support.arena.acting_words import Acting, member_of, supervise
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member, MembershipChanged, PeerExited, pulse_of
from unisono.arena.membership.protocol import COMMIT, READY, View, pack
from unisono.arena.sync.waiting import wait_until


def test_the_last_to_come_does_not_wait_and_knows_it():
    words, member = member_of(3)
    for slot in (1, 2):
        protocol.arrive(words, slot, pack(1, 1, READY))
    assert member.barrier(1, READY) is True
    assert protocol.flag_of(words, 0) == pack(1, 1, READY)
    with pytest.raises(TimeoutError):
        member.barrier(1, COMMIT)
    assert member.late() == [1, 2]
    protocol.arrive(words, 2, pack(1, 1, COMMIT))
    assert member.late() == [1]


def test_who_waits_for_one_that_has_ended_is_told():
    words, member = member_of(3, timeout_s=60.0)
    member.detect_exits(lambda: [1, 2])
    protocol.arrive(words, 2, pack(1, 1, READY))  # it came first, and ended then
    with pytest.raises(PeerExited) as caught:
        member.barrier(1, READY)
    assert caught.value.slots == [1]


def test_one_that_came_and_ended_is_not_missed():
    """It arrives between the look at the flags and the look at the processes."""
    words, member = member_of(2, timeout_s=60.0)

    def ended() -> list[int]:
        protocol.arrive(words, 1, pack(1, 1, READY))
        return [1]

    member.detect_exits(ended)
    assert member.barrier(1, READY) is False


@pytest.mark.parametrize("crowded", [True, False])
def test_who_comes_first_waits_for_the_others(crowded):
    words = Acting(2)
    protocol.first_view(words, range(2), 2)
    member = Member(words, 0, 2, crowded=crowded, timeout_s=60.0)
    looks = 0

    def come_late(at: int) -> None:
        nonlocal looks
        looks += at == protocol.line(1)
        if looks == 400:
            words.on_read = lambda at: None
            protocol.arrive(words, 1, pack(1, 1, READY))

    words.on_read = come_late
    assert member.barrier(1, READY) is False


def test_who_waits_for_somebody_lost_learns_where_to_go_on():
    words, member = member_of(3, timeout_s=60.0)
    protocol.arrive(words, 1, pack(1, 1, READY))
    supervise(words, 3, members=[0, 1])
    with pytest.raises(MembershipChanged):
        member.barrier(1, READY)
    assert member.view == View(2, (0, 1), 0, COMMIT, ())
    assert (member.index, member.count, member.first) == (0, 2, True)
    protocol.arrive(words, 1, pack(2, 1, READY))
    assert member.barrier(1, READY) is True, "the one who is lost is still waited for"


def test_a_pause_is_short_unless_there_is_a_freeze():
    words, member = member_of(2, timeout_s=60.0)
    member.check_membership()
    supervise(words, 2, members=[0])
    with pytest.raises(MembershipChanged):
        member.check_membership()
    assert member.view == View(2, (0,), 0, COMMIT, ())
    member.check_membership()


def test_a_replacement_waits_for_a_view_later_than_it_was_told_that_contains_it():
    words, _ = member_of(2)
    with pytest.raises(TimeoutError):
        Member(words, 1, 2, crowded=True, timeout_s=0.0, after=1)
    protocol.publish(words, View(2, (0,), 0, COMMIT, ()), 2)
    with pytest.raises(TimeoutError):
        Member(words, 1, 2, crowded=True, timeout_s=0.0, after=1)
    protocol.publish(words, View(3, (0, 1), 4, READY, (0,)), 2)
    member = Member(words, 1, 2, crowded=True, timeout_s=0.0, after=1)
    assert member.view == View(3, (0, 1), 4, READY, (0,))
    assert (member.index, member.count, member.first) == (1, 2, False)


def test_nobody_enters_before_the_first_view():
    with pytest.raises(TimeoutError):
        Member(Acting(1), 0, 1, crowded=True, timeout_s=0.0)


def test_a_replacement_goes_on_counting_the_work_of_the_place():
    words, member = member_of(2)
    member.pulse()
    member.pulse()
    Member(words, 0, 2, crowded=True).pulse()
    assert pulse_of(words, 0) == 3
    assert pulse_of(words, 1) == 0


def test_who_waits_for_a_disk_shows_that_it_lives_and_only_then():
    words, member = member_of(2)
    with member.pulsing():
        assert wait_until(lambda: pulse_of(words, 0) >= 2, 30.0)
    seen = pulse_of(words, 0)
    member.pulse()
    assert pulse_of(words, 0) == seen + 1


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_meetings_keep_rounds_apart(size):
    """Between READY and COMMIT everybody reads what everybody wrote before READY, and nothing newer."""
    words = [0] * protocol.words_needed(size)
    protocol.first_view(words, range(size), size)
    written, wrong, last = [0] * size, [], [0] * size

    def work(slot: int) -> None:
        member = Member(words, slot, size, crowded=True, timeout_s=60.0)
        for position in range(1, 41):
            written[slot] = position
            last[slot] += member.barrier(position, READY)
            if set(written) != {position}:
                wrong.append((slot, position, list(written)))
            member.barrier(position, COMMIT)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    assert wrong == []
    assert written == [40] * size
    assert sum(last) >= 40, "somebody is the last to come to every meeting"
