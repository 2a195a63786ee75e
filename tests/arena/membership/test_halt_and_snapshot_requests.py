"""Requests: settled once, obeyed by all at one round, and not lost with the one who settles them."""

from support.arena.recorded_words import WORDS, Recording, Write
from unisono.arena.membership import protocol
from unisono.arena.membership.halt_and_snapshot_requests import Requests


def fresh() -> list[int]:
    return [0] * protocol.words_needed(2)


def rounds_halting(requests: Requests) -> list[int]:
    return [position for position in range(10) if requests.halts_after(position)]


def test_everybody_halts_after_the_round_in_which_it_was_settled():
    requests = Requests(fresh())
    requests.decide(1, due=False)
    requests.ask_to_halt()
    assert rounds_halting(requests) == []
    requests.decide(2, due=False)
    requests.decide(2, due=False)  # another first member, in the same round
    requests.decide(3, due=False)
    assert rounds_halting(requests) == [2]


def test_a_copy_is_made_once_for_each_time_it_is_asked_for():
    requests = Requests(fresh())
    assert not any(requests.snapshot_after(position) for position in range(5))
    requests.ask_for_snapshot()
    requests.decide(1, due=False)
    assert requests.snapshot_after(1)
    assert requests.snapshot_at == 1
    requests.decide(2, due=False)
    requests.snapshot_written()
    assert not requests.snapshot_after(1)
    requests.decide(3, due=False)
    assert requests.snapshot_at == 1


def test_no_copy_is_decided_while_one_is_being_written():
    requests = Requests(fresh())
    requests.decide(1, due=True)
    requests.ask_for_snapshot()
    requests.decide(2, due=True)
    assert requests.snapshot_at == 1
    assert requests.snapshot_after(1)
    requests.snapshot_written()
    requests.decide(3, due=False)
    assert requests.snapshot_at == 3, "what was asked for meanwhile was forgotten"


def test_a_round_that_is_done_again_decides_the_same():
    requests = Requests(fresh())
    requests.decide(4, due=True)
    requests.decide(4, due=True)
    requests.snapshot_written()
    requests.decide(4, due=True)
    assert not requests.snapshot_after(4)


def test_nothing_is_lost_with_the_one_who_decides_it():
    """A first member dies after so many writes of settling round 3; the next one settles it again."""
    words, log = fresh(), list[Write]()
    Requests(words).ask_to_halt()
    Requests(words).ask_for_snapshot()
    Requests(Recording(words, WORDS, log)).decide(3, due=False)
    for count in range(len(log) + 1):
        left = list(words)
        for _, at, value in log[:count]:
            left[at] = value
        requests = Requests(left)
        requests.decide(3, due=False)
        assert rounds_halting(requests) == [3], f"after {count} writes"
        assert requests.snapshot_after(3), f"after {count} writes"
