"""The supervisor with ranks that do nothing but meet: who is replaced, when a run ends, what is said about it."""

import errno
import mmap
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from unisono.arena.membership import protocol
from unisono.arena.membership.halt_and_snapshot_requests import Requests
from unisono.arena.membership.member import Member, MembershipChanged
from unisono.arena.membership.protocol import COMMIT, REQUESTS
from unisono.arena.membership.protocol import READY as GRADIENTS
from unisono.arena.sync.waiting import wait_until
from unisono.errors import RankFailed
from unisono.messages.rank_reports import ReadyToJoin
from unisono.supervise import failure_policy
from unisono.supervise.config import SupervisorConfig, SupervisorResult
from unisono.supervise.failure_policy import MOST_FAILURES
from unisono.supervise.processes import ProcessGroup
from unisono.supervise.stall_detector import FIRST_S, StallDetector
from unisono.supervise.supervisor import Supervisor

SIZE, ROUNDS = 3, 200

Hook = Callable[[int, int, int], None]
"""Called with (slot, after, position) before READY of every round."""


def new_words() -> memoryview:
    return memoryview(mmap.mmap(-1, 8 * protocol.words_needed(SIZE))).cast("q")


def walker(words: memoryview, hook: Hook, rounds: int = ROUNDS, views: int = 1) -> Any:
    """A rank's life: so many rounds, and more until there were so many views; nothing in them."""

    def live(slot: int, after: int, report: Callable[[Any], None]) -> dict[str, int]:
        if after:
            hook(slot, after, 0)
            report(ReadyToJoin())
        member = Member(words, slot, SIZE, crowded=True, after=after)
        while True:
            view = member.view
            position = view.position + (view.reached == COMMIT)
            try:
                while position <= rounds or member.view.number < views:
                    if (member.view.position, member.view.reached) != (position, GRADIENTS):
                        hook(slot, after, position)
                        member.pulse()
                        member.barrier(position, GRADIENTS)
                    member.barrier(position, COMMIT)
                    position += 1
                return {"done": rounds}
            except MembershipChanged:
                continue

    return live


def watching(words: memoryview, live: Any, events: list[dict[str, Any]], **config: Any) -> Supervisor:
    """Events are noted as events.jsonl would have them."""
    given = SupervisorConfig(on_event=lambda event: events.append(event.to_json()), **config)
    return Supervisor(words, SIZE, live, given, lambda rank, value: None)


def supervise(
    hook: Hook = lambda slot, after, position: None,
    words: memoryview | None = None,
    *,
    rounds: int = ROUNDS,
    views: int = 1,
    **config: Any,
) -> tuple[SupervisorResult, list[dict[str, Any]]]:
    """How it ended, and the events."""
    events: list[dict[str, Any]] = []
    words = new_words() if words is None else words
    try:
        return watching(words, walker(words, hook, rounds, views), events, **config).run(), events
    finally:
        assert psutil.Process().children() == []


def die(*given: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(*points: tuple[int, int, int]) -> Hook:
    """Whoever comes to one of these (slot, after, position) is killed."""
    return lambda *point: die() if point in points else None


def test_everybody_comes_to_the_end():
    outcome, events = supervise()
    assert {"done": ROUNDS} in outcome.results.values()
    assert (outcome.lost, outcome.takeovers, outcome.restarts, outcome.takeover_s, events) == ("", 0, 0, [], [])


@pytest.mark.parametrize("respawn", [True, False])
@pytest.mark.parametrize("slot", range(SIZE))
def test_a_rank_that_dies_is_taken_over_and_replaced(slot, respawn):
    outcome, events = supervise(die_at((slot, 0, 3)), respawn=respawn, views=3 if respawn else 2)
    assert {"done": ROUNDS} in outcome.results.values()
    assert (outcome.takeovers, outcome.restarts) == (1, int(respawn))
    assert len(outcome.takeover_s) == 1
    assert events[0] | {"s": 0} == {
        "kind": "death", "rank": slot, "cause": "was killed by SIGKILL", "worked": True, "position": 2,
        "reached": "commit", "ranks": SIZE - 1, "s": 0, "taken_over_by": "others",
        "stalled": False,
    }  # fmt: skip
    assert [event["rank"] for event in events[1:]] == ([slot] if respawn else [])


def test_a_rank_has_the_number_that_it_has_among_those_of_all_machines():
    rank_of = range(4, 7).__getitem__
    _, events = supervise(die_at((1, 0, 5)), rank_of=rank_of, views=3)
    assert [(event["kind"], event["rank"]) for event in events] == [("death", 5), ("join", 5)]
    lost = supervise(die, respawn=False, rank_of=rank_of)[0].lost
    assert re.search("rank [456] was killed", lost), "whichever was the last"

    def fail(slot: int, after: int, position: int) -> None:
        if slot == 2:
            raise ValueError("no")

    with pytest.raises(RankFailed) as caught:
        supervise(fail, rank_of=rank_of)
    assert caught.value.rank == 6


def test_what_was_begun_is_restored_before_anybody_goes_on():
    """A round whose gradients all exist: its update alone is done again."""
    words, seen = new_words(), []

    def hook(slot: int, after: int, position: int) -> None:
        if position == 4 and slot == 0 and not after:  # the others wait for this one, so they are at 4, READY
            for other in (1, 2, 0):
                words[protocol.line(other)] = protocol.pack(1, 4, GRADIENTS)
            die()

    supervise(hook, words, restore=lambda view: seen.append((view, protocol.current_view(words, SIZE).number)))
    view, published = seen[0]
    assert (view.position, view.reached, view.contributors) == (4, GRADIENTS, (0, 1, 2))
    assert (view.number, published) == (2, 1)


def test_the_death_of_the_last_rank_ends_the_run():
    outcome, _ = supervise(die_at(*((slot, 0, 5) for slot in range(SIZE))), respawn=False)
    assert outcome.lost.startswith("no rank is left: rank ")
    assert (outcome.view.position, outcome.view.reached, outcome.view.members) == (4, COMMIT, ())
    assert outcome.results == {}


def test_nobody_takes_over_from_the_last_rank():
    outcome, events = supervise(die_at(*((slot, 0, 3 + 2 * slot) for slot in range(SIZE))), respawn=False)
    assert outcome.lost.startswith("no rank is left: rank 2 ")
    assert [event["taken_over_by"] for event in events] == ["others", "others", "nobody"]
    assert outcome.takeovers == len(outcome.takeover_s) == 2


def test_a_replacement_takes_over_from_whoever_is_the_last():
    words, pids = new_words(), range(REQUESTS + 8, REQUESTS + 11)

    def hook(slot: int, after: int, position: int) -> None:
        if (slot, after, position) == (0, 0, 3):
            die()
        if slot and not after and position == 5:
            words[pids[slot]] = os.getpid()
            assert wait_until(lambda: words[pids[0]] == 1, 30.0)
            die()
        if slot == 0 and after and not position:  # the replacement is on its way, and not ready before they are gone
            assert wait_until(lambda: all(words[pids[other]] for other in (1, 2)), 30.0)
            words[pids[0]] = 1
            assert wait_until(lambda: not any(psutil.pid_exists(words[pids[other]]) for other in (1, 2)), 30.0)

    outcome, events = supervise(hook, words)
    assert not outcome.lost
    assert ("death", "replacement") in [(event["kind"], event.get("taken_over_by")) for event in events], events


def test_a_death_with_which_a_run_is_given_up_is_not_taken_over():
    outcome, events = supervise(die_at((1, 0, 5)), most_deaths=0)
    assert outcome.lost == "1 rank died within 10 minutes, the last: rank 1 was killed by SIGKILL"
    assert outcome.takeovers == 0
    assert [(event["ranks"], event["taken_over_by"]) for event in events] == [(2, "nobody")]


def test_more_deaths_than_allowed_end_the_run():
    def hook(slot: int, after: int, position: int) -> None:
        if slot == 1 and position:
            die()  # every replacement too, once it has joined

    outcome, _ = supervise(hook, most_deaths=3, rounds=1_000_000)
    assert outcome.lost == "4 ranks died within 10 minutes, the last: rank 1 was killed by SIGKILL"
    assert outcome.restarts == 3
    assert outcome.view.members == (0, 2)


def test_replacements_that_do_not_live_to_join_neither_end_a_healthy_run_nor_stop_it(monkeypatch):
    """Nobody stands still for somebody who is not there yet; and they are tried again until one can join."""
    monkeypatch.setattr(failure_policy, "MOST_PAUSE_S", 0.05)
    words = new_words()

    def hook(slot: int, after: int, position: int) -> None:
        if slot == 1 and position == 2 and not after:
            die()
        if after and words[REQUESTS + 8] < MOST_FAILURES + 2:  # more often than where nobody else is left
            words[REQUESTS + 8] += 1
            die()

    outcome, events = supervise(hook, words, views=3, most_deaths=3)
    assert {"done": ROUNDS} in outcome.results.values()
    assert (outcome.lost, outcome.takeovers) == ("", 1)
    assert [event["kind"] for event in events] == ["death", *(MOST_FAILURES + 2) * ["newcomer"], "join"]


def test_replacements_that_do_not_live_to_join_are_given_up_when_nobody_else_is_left(monkeypatch):
    monkeypatch.setattr(failure_policy, "MOST_PAUSE_S", 0.05)
    words = new_words()

    def hook(slot: int, after: int, position: int) -> None:
        words[REQUESTS + 8] += bool(after)
        if after or (slot, position) == (1, 2) or words[REQUESTS + 8] > MOST_FAILURES:
            die()

    outcome, events = supervise(hook, words, rounds=10**9)
    assert outcome.lost.startswith("no rank is left: ")
    tried = [event["again"] for event in events if event["kind"] == "newcomer" and event["rank"] == 1]
    assert len(tried) > MOST_FAILURES
    assert tried.index(False) == len(tried) - 1


def test_a_replacement_that_dies_when_all_wait_for_it_is_not_the_last_one():
    words = new_words()
    tries, pids = REQUESTS + 8, [REQUESTS + 9 + slot for slot in range(SIZE)]

    def hook(slot: int, after: int, position: int) -> None:
        if not after:
            words[pids[slot]] = os.getpid()
            if (slot, position) == (1, 2) or words[tries]:  # the others: once its replacement is on its way
                die()
        elif slot == 1 and not words[tries]:
            words[tries] = 1
            assert wait_until(lambda: not any(psutil.pid_exists(words[pids[other]]) for other in (0, 2)), 30.0)
            die()
        elif slot != 1:  # those who could save the run come when it is over
            signal.pause()

    outcome, _ = supervise(hook, words, rounds=10**4)
    assert (outcome.lost, outcome.results) == ("", {1: {"done": 10**4}})


def test_a_replacement_that_cannot_be_forked_is_done_without(monkeypatch):
    forks, start = [], ProcessGroup.start

    def short_of_memory(process_group: ProcessGroup, rank: int, body: Any) -> None:
        forks.append(rank)
        if len(forks) > SIZE:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        start(process_group, rank, body)

    monkeypatch.setattr(ProcessGroup, "start", short_of_memory)
    outcome, events = supervise(die_at((1, 0, 2)))
    assert {"done": ROUNDS} in outcome.results.values()
    assert "could not be started: Cannot allocate memory" in {event.get("cause") for event in events}


def test_an_exception_ends_the_run_with_its_traceback_though_another_dies():
    def hook(slot: int, after: int, position: int) -> None:
        if (slot, position) == (1, 3):
            die()
        if (slot, position) == (2, 4):
            raise ValueError("mine")

    with pytest.raises(RankFailed, match=r"(?s)rank 2: Traceback.*ValueError: mine"):
        supervise(hook)


def test_a_replacement_that_never_gets_ready_is_replaced(monkeypatch):
    """Views: the first, one without the dead rank, one with its second replacement. Whoever else lacks a core for a
    second is waited for."""
    events: list[dict] = []
    patience_s = StallDetector.patience_s

    def hook(slot: int, after: int, position: int) -> None:
        if slot == 1 and position == 2 and not after:
            die()
        if after == 2 and not words[REQUESTS + 8]:
            words[REQUESTS + 8] = 1
            os.kill(os.getpid(), signal.SIGSTOP)

    def patience(stall_detector: StallDetector) -> float:
        stopped = words[REQUESTS + 8] and len(events) == 1
        return patience_s(stall_detector) if stopped and stall_detector is watched._join_detector else FIRST_S

    monkeypatch.setattr(StallDetector, "patience_s", patience)
    words = new_words()
    watched = watching(words, walker(words, hook, views=3), events, stall_s=1.0)
    watched.run()
    assert [(event["kind"], event["rank"], event.get("cause", "")) for event in events] == [
        ("death", 1, "was killed by SIGKILL"),
        ("newcomer", 1, "did not move for 1 s (--stall-timeout) and was ended"),
        ("join", 1, ""),
    ]


def test_a_request_that_is_not_met_at_once_is_said_to_be_heard_once(monkeypatch):
    monkeypatch.setattr("unisono.supervise.supervisor.SILENCE_S", 0.0)
    words = new_words()

    def hook(slot: int, after: int, position: int) -> None:
        if slot == 0 and position in (1, 2):
            os.kill(os.getppid(), (signal.SIGUSR1, signal.SIGTERM)[position - 1])
        if position > 1:
            assert wait_until(lambda: Requests(words).asked_to_halt, 60.0)

    assert supervise(hook, words)[1] == [{"kind": "asked to end"}]


def test_signals_count_together_in_a_run_and_around_it():
    watched = watching(new_words(), walker(new_words(), lambda *given: None), [])
    with watched.accept_stop_requests():
        with watched.accept_stop_requests():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    watched._ranks.close()


def test_a_replacement_that_is_stuck_at_the_end_is_not_waited_for():
    def hook(slot: int, after: int, position: int) -> None:
        if slot == 1 and position == 2 and not after:
            die()
        if after:
            os.kill(os.getpid(), signal.SIGSTOP)

    assert {"done": ROUNDS} in supervise(hook)[0].results.values()


def test_whoever_stands_still_when_all_is_done_is_let_go():
    """A freeze at the very end: one rank saw that all had come, another one saw the freeze first."""
    words = new_words()

    def live(slot: int, after: int, report: Callable[[Any], None]) -> dict[str, int]:
        if slot == 2:
            die()
        while not protocol.freezing(words, 1):
            pass
        if slot == 1:
            protocol.stand_still(words, 1)
            while protocol.current_view(words, SIZE).number < 2:
                pass
        while protocol.not_still(words, [1]):
            pass
        return {"done": 1}

    outcome = watching(words, live, [], respawn=False).run()
    assert outcome.results == {0: {"done": 1}, 1: {"done": 1}}


def test_a_signal_asks_for_an_end_and_handlers_are_put_back():
    words, before = new_words(), signal.getsignal(signal.SIGTERM)

    def live(slot: int, after: int, report: Callable[[Any], None]) -> dict[str, int]:
        if slot == 0:
            os.kill(os.getppid(), signal.SIGTERM)
        while not words[REQUESTS]:
            pass
        return {"halted": 1}

    outcome = watching(words, live, []).run()
    assert {"halted": 1} in outcome.results.values()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_ends_at_once():
    words = new_words()

    def live(slot: int, after: int, report: Callable[[Any], None]) -> None:
        if slot == 0:
            os.kill(os.getppid(), signal.SIGINT)
            while not words[REQUESTS]:
                pass
            os.kill(os.getppid(), signal.SIGUSR1)  # another kind is no second one
            os.kill(os.getppid(), signal.SIGINT)
        while True:
            signal.pause()

    with pytest.raises(KeyboardInterrupt):
        watching(words, live, []).run()
    assert psutil.Process().children() == []


def test_ranks_are_named_by_their_numbers_among_those_of_all_machines():
    names: dict[int, str] = {}

    def live(slot: int, after: int, report: Callable[[Any], None]) -> dict[str, int]:
        with open("/proc/self/comm") as file:
            report(file.read().strip())
        return {}

    Supervisor(new_words(), SIZE, live, SupervisorConfig(rank_of=lambda slot: slot + 4), names.__setitem__).run()
    assert names == {slot: f"unisono-rank{slot + 4}" for slot in range(SIZE)}
