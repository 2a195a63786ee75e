"""Ranks that meet two by two: who answers, who does not, and that nobody waits for the latter for ever."""

import os
import signal
from itertools import combinations
from types import SimpleNamespace

import pytest

import unisono
from unisono.doctor.machines import pairwise_test as visiting
from unisono.doctor.machines.diagnosis import report
from unisono.doctor.machines.facts import facts_here
from unisono.doctor.machines.link_measurement import FIRST_BYTES, MOST_BYTES, Link, _ask, meet
from unisono.doctor.machines.pairwise_test import dismiss, follow, lead, pair_turns, tournament
from unisono.doctor.machines.rank_messenger import MessageBoard, RankMessenger
from unisono.errors import CommError, CommTimeout

LAYOUTS = [[0], [0, 0], [0, 1], [0, 1, 2], [0, 0, 1, 1], [0, 0, 0, 1], [5, 7, 5, 9], [0, 1, 1, 2, 2, 2], [*range(7)]]


class Dog:
    """Notes what was allowed."""

    def __init__(self) -> None:
        self.said = []

    def allow(self, seconds, what):
        self.said.append((seconds, what))


def visit(world, silent=-1, deaf=()):
    """What rank 0 finds; `silent` stops to answer after it has told about itself, `deaf` pairs cannot be connected."""
    board = MessageBoard(world.comm)
    if silent >= 0:
        visiting.PATIENCE_S = 3.0  # in this rank alone
        board.hear = _hasty(board.hear, silent)  # type: ignore[method-assign]
    board.line = lambda peer, patience_s: _line(world.comm, peer, patience_s, deaf)  # type: ignore[method-assign]
    facts = facts_here("shm", "10.0.0.1") | {"node": f"node {world.rank // 2}", "host": f"n{world.rank // 2}"}
    if world.rank == silent:
        board.tell(0, facts)
        board.hear(0, 30.0)
        while not board.hear(0, 0.2):
            pass  # until everybody else is done
        return None
    if world.rank:
        follow(board, facts, Dog())
        return None
    found = lead(board, facts, Dog())
    dismiss(board, found)
    if silent >= 0:
        board.tell(silent, {"now": "leave"})
    return {
        "speeds": sorted(map(list, found.speeds)),
        "silent": {str(rank): why for rank, why in found.silent.items()},
        "failed": [[*pair, why] for pair, why in found.failed.items()],
        "colours": sorted(found.colours().values()),
        "measured": all(speed.latency_s > 0 and speed.bytes_per_s > 0 for speed in found.speeds.values()),
    }


def _hasty(hear, silent):
    """Once it has told about itself, nobody waits long for the silent one; for all others as long as ever."""
    heard = set()

    def hear_hastily(source, timeout_s):
        known = source == silent and source in heard
        heard.add(source)
        return hear(source, 0.2 if known else timeout_s)

    return hear_hastily


class _line:
    def __init__(self, comm, peer, patience_s, deaf):
        self.line = Link(comm, peer, patience_s)
        self.deaf = [*sorted((comm.rank, peer))] in [[*pair] for pair in deaf]

    def __enter__(self):
        if self.deaf:
            raise CommTimeout("in a test")
        return self.line

    def __exit__(self, *reason):
        pass


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_pair_is_measured_in_both_directions(ranks):
    found = unisono.run(visit, ranks)[0]
    pairs = [[one, other] for one in range(ranks) for other in range(ranks) if one != other]
    assert (found["speeds"], found["measured"], found["silent"], found["failed"]) == (pairs, True, {}, [])
    assert found["colours"] == [0, 0, 2, 2][:ranks]


@pytest.mark.parametrize("silent", [1, 3])
def test_a_rank_that_falls_silent_is_named_and_the_others_go_on(silent):
    found = unisono.run(lambda world: visit(world, silent=silent), 4)[0]
    assert list(found["silent"]) == [str(silent)]
    assert "stopped to answer when it was to meet rank" in found["silent"][str(silent)]
    rest = [rank for rank in range(4) if rank != silent]
    assert found["speeds"] == [[one, other] for one in rest for other in rest if one != other]
    assert found["failed"] == []


class Told(RankMessenger):
    """Other ranks say what is given here, whatever they are asked."""

    transport, size = "gloo", 2

    def __init__(self, rank, news):
        self.rank, self.news = rank, news

    def tell(self, dest, news):
        pass

    def hear(self, source, timeout_s):
        return self.news.pop(0)

    def line(self, peer, patience_s):
        raise CommTimeout("in a test")


MINE = facts_here("gloo", "10.0.0.1")


@pytest.mark.parametrize(
    "facts",
    [
        "facts", [], {}, MINE | {"host": 7}, MINE | {"packages": None}, MINE | {"fingerprint": "cpu"},
        MINE | {"fingerprint": {}}, MINE | {"affinity": 3}, MINE | {"affinity": ["3"]}, MINE | {"cores": True},
        MINE | {"address": "1" * 1000}, {name: value for name, value in MINE.items() if name != "MPI"},
    ],
    ids=lambda facts: str(facts)[-25:],
)  # fmt: skip
def test_a_rank_that_tells_nonsense_about_itself_is_named(facts):
    found = lead(Told(0, [facts]), MINE, Dog())
    assert found.silent == {1: "told about itself what cannot be"}
    assert "rank 1" in report(found)


@pytest.mark.parametrize(
    "answer",
    ["", [1], {}, {"failed": 3}, {"latency_s": 0.1}, {"latency_s": 0.1, "bytes_per_s": 0.0}, {"latency_s": "a"}],
    ids=str,
)
def test_a_rank_that_answers_nonsense_is_named(answer):
    found = lead(Told(0, [MINE, answer]), MINE, Dog())
    assert found.silent == {1: "answered what cannot be when it was to meet rank 0"}


@pytest.mark.parametrize(
    "order",
    ["over", {"over": True}, {"meet": 0}, {"meet": 1, "seconds": 0.1}, {"meet": 2, "seconds": 0.1}, {"seconds": 0.1}],
    ids=str,
)
def test_an_order_that_cannot_be_is_refused(order):
    with pytest.raises(CommError, match="rank 1: what rank 0 asked for is not valid"):
        follow(Told(1, [order]), MINE, Dog())


def test_a_pair_that_cannot_connect_is_told_and_nobody_else_suffers():
    found = unisono.run(lambda world: visit(world, deaf=[(1, 2)]), 3)[0]
    assert found["failed"] == [[1, 2, "no answer within 5 s"]]
    assert found["silent"] == {}
    assert found["speeds"] == [[0, 1], [0, 2], [1, 0], [2, 0]]


def test_without_the_first_rank_the_others_give_up():
    def work(world):
        visiting._TURN_S = visiting._ARRIVING_S = 0.1
        if world.rank:
            with pytest.raises(CommTimeout, match=r"rank 1: rank 0 said nothing for 0\.2 s"):
                follow(MessageBoard(world.comm), {}, Dog())
        world.comm.barrier()

    unisono.run(work, 2)


TRIP = "unisono.doctor.machines.link_measurement._trip"


def test_one_long_trip_is_not_believed(monkeypatch):
    """Something else had the processor: the link is not slow for that."""
    sent, times = [], iter([0.5, 0.001, 0.5, 0.02, 0.03])
    trips = {8: lambda: 0.0, FIRST_BYTES: lambda: next(times), 2 * FIRST_BYTES: lambda: next(times)}
    monkeypatch.setattr(TRIP, lambda line, outgoing, incoming: trips[outgoing.nbytes]())
    speed = _ask(SimpleNamespace(send=lambda array: sent.append(int(array[0]))), 0.02)
    assert sent == [FIRST_BYTES] * 2 + [2 * FIRST_BYTES] * 3 + [-1]
    assert speed.bytes_per_s == 2 * FIRST_BYTES / 0.02


def test_the_longest_message_is_not_believed_at_once_either(monkeypatch):
    times = iter([0.019, 0.003, 0.004])
    monkeypatch.setattr(TRIP, lambda line, outgoing, incoming: next(times) if outgoing.nbytes == MOST_BYTES else 0.0)
    assert _ask(SimpleNamespace(send=lambda array: None), 0.02).bytes_per_s == MOST_BYTES / 0.003


def test_a_link_that_takes_seconds_is_looked_at_once(monkeypatch):
    times = iter([0.0] * 12 + [5.0])
    monkeypatch.setattr(TRIP, lambda line, outgoing, incoming: next(times))
    assert _ask(SimpleNamespace(send=lambda array: None), 0.02).bytes_per_s == FIRST_BYTES / 5.0


def test_a_line_ends_in_time():
    def work(world):
        if world.rank == 0:
            with pytest.raises(CommTimeout, match=r"no answer within 0\.1 s"):
                meet(Link(world.comm, 1, 0.1), first=True, seconds=0.01)
        world.comm.barrier()

    unisono.run(work, 2)


def test_a_process_that_is_stuck_is_ended_with_a_word(capfd):
    from unisono.doctor.machines.watchdog import Watchdog

    pid = os.fork()
    if not pid:
        with Watchdog("rank 2 of 4") as dog:
            dog.allow(0.1, "when MPI was starting")
            signal.pause()  # in a call that ends by a signal only
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert "unisono: rank 2 of 4: gave up after 0.1 s, when MPI was starting" in capfd.readouterr().err


@pytest.mark.parametrize("nodes", LAYOUTS, ids=str)
def test_every_pair_meets_once(nodes):
    met = [pair for turn in pair_turns(nodes) for pair in turn]
    assert sorted(met) == list(combinations(range(len(nodes)), 2))


@pytest.mark.parametrize("nodes", LAYOUTS, ids=str)
def test_a_node_is_in_one_pair_at_a_time(nodes):
    for turn in pair_turns(nodes):
        used = [node for pair in turn for node in {nodes[rank] for rank in pair}]
        assert len(used) == len(set(used)), turn


def test_nodes_that_are_many_meet_side_by_side():
    assert len(tournament([*range(8)])) == 7
    assert [len(turn) for turn in pair_turns([*range(8)])] == [4] * 7
