"""Pairwise test: all ranks, two by two: which answer, how long a message takes, how many bytes pass in a second.

    visit = lead(board, facts, dog); dismiss(board, visit)       # on rank 0
    follow(board, facts, dog)                                    # on every other rank

    >>> pair_turns([0, 0, 1, 1])
    [[(0, 2)], [(0, 3)], [(1, 2)], [(1, 3)], [(0, 1), (2, 3)]]

The one idea: rank 0 says which ranks meet next, and hears from both how it went. A rank that has fallen silent is
waited for once; it is left out from then on, and named. The turns (`pair_turns`) are a tournament of nodes: in each
round every node meets one other, or rests, and within a round the ranks of two nodes meet two at a time, one pair after
the other. So every pair meets once, and no node's link is shared meanwhile: what a pair measures is the link's. Pairs
of one node come last, all nodes at once.

Limits: ranks that rank 0 cannot reach count as silent, though others may reach them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product, zip_longest
from typing import Any, TypeAlias, final

from unisono.doctor.machines.facts import are_facts
from unisono.doctor.machines.link_measurement import Speed, meet
from unisono.doctor.machines.rank_messenger import RankMessenger
from unisono.doctor.machines.watchdog import Watchdog
from unisono.errors import CommError, CommTimeout

PATIENCE_S = 5.0
"""How long a rank waits for another, for every single message."""
_ARRIVING_S = 10.0
_TURN_S = 3 * PATIENCE_S
"""The time to connect, to ask, to be asked."""
_BUDGET_S, _MOST_S, _LEAST_S = 20.0, 0.02, 0.001
"""The time for all turns together, and the bounds of the time for the longest message of one turn."""
Pair: TypeAlias = tuple[int, int]


@final
@dataclass(frozen=True)
class PairwiseResult:
    """The results. Ranks by number."""

    transport: str
    size: int
    facts: Mapping[int, dict[str, Any]]
    """The facts of the ranks that answered at all."""
    silent: dict[int, str] = field(default_factory=dict)
    """Ranks that stopped to answer, and when."""
    speeds: dict[tuple[int, int], Speed] = field(default_factory=dict)
    """From one rank to another, as the first one measured."""
    failed: dict[tuple[int, int], str] = field(default_factory=dict)
    """Pairs (lower rank first) that could not exchange messages, and why."""

    def colours(self) -> dict[int, int]:
        """For each rank that answered: the lowest rank of its node."""
        first: dict[str, int] = {}
        return {rank: first.setdefault(facts["node"], rank) for rank, facts in sorted(self.facts.items())}


def lead(board: RankMessenger, facts: dict[str, Any], dog: Watchdog) -> PairwiseResult:
    """On rank 0: all turns. The others wait to be dismissed."""
    dog.allow(_ARRIVING_S + _TURN_S, "waiting for the others to tell about themselves")
    deadline = time.monotonic() + _ARRIVING_S
    others = {rank: board.hear(rank, max(0.0, deadline - time.monotonic())) for rank in range(1, board.size)}
    known_facts = {rank: told for rank, told in others.items() if are_facts(told)}
    visit = PairwiseResult(board.transport, board.size, {0: facts} | known_facts)
    for rank in others.keys() - known_facts.keys():
        late = others[rank] is None
        visit.silent[rank] = f"did not answer within {_ARRIVING_S:g} s" if late else "told about itself what cannot be"
    colours = visit.colours()
    known = sorted(colours)
    plan = pair_turns([colours[rank] for rank in known])
    seconds = min(_MOST_S, max(_LEAST_S, _BUDGET_S / 4 / max(1, len(plan))))
    for numbers in plan:
        pairs = [(known[one], known[other]) for one, other in numbers]
        dog.allow(2 * _TURN_S, f"in a turn of {len(pairs)} pairs")
        _take_turn(board, visit, [pair for pair in pairs if not visit.silent.keys() & set(pair)], seconds)
    dog.allow(2 * _TURN_S, "when it told what was found")
    return visit


def dismiss(board: RankMessenger, visit: PairwiseResult) -> None:
    """On rank 0: tells every rank that answers that the test is over, and whether any rank is silent."""
    for rank in _others(visit):
        board.tell(rank, {"over": True, "complete": not visit.silent})
    deadline = time.monotonic() + _TURN_S
    for rank in _others(visit):  # the rank that serves the store stays until the others have read that
        board.hear(rank, max(0.0, deadline - time.monotonic()))


def follow(board: RankMessenger, facts: dict[str, Any], dog: Watchdog) -> bool:
    """On every other rank: until rank 0 ends the test; whether all ranks answer. A `CommError` if rank 0 does not."""
    dog.allow(2 * _TURN_S + _ARRIVING_S, "waiting for rank 0")
    board.tell(0, facts)
    patience_s = _ARRIVING_S + _TURN_S
    while True:
        order = board.hear(0, patience_s)
        if order is None:
            raise CommTimeout(f"rank 0 said nothing for {patience_s:g} s", missing=[0], rank=board.rank)
        if not _is_order(order, board):
            raise CommError("what rank 0 asked for is not valid", rank=board.rank)
        if "over" in order:
            board.tell(0, {"bye": True})
            return bool(order["complete"])
        dog.allow(4 * _TURN_S, "waiting for rank 0")
        if order["meet"] is not None:
            board.tell(0, _meet(board, order["meet"], order["seconds"]))
        patience_s = 2 * _TURN_S


def _take_turn(board: RankMessenger, visit: PairwiseResult, pairs: list[tuple[int, int]], seconds: float) -> None:
    partner = {rank: other for pair in pairs for rank, other in (pair, pair[::-1])}
    for rank in _others(visit):
        board.tell(rank, {"meet": partner.get(rank), "seconds": seconds})
    deadline = time.monotonic() + _TURN_S
    answers = {0: _meet(board, partner[0], seconds)} if 0 in partner else {}
    for rank in sorted(partner.keys() - {0}):
        told = board.hear(rank, max(0.0, deadline - time.monotonic()))
        if told is None or not _is_answer(told):
            what = "stopped to answer" if told is None else "answered what cannot be"
            visit.silent[rank] = f"{what} when it was to meet rank {partner[rank]}"
        else:
            answers[rank] = told
    for rank, told in answers.items():
        if "failed" not in told:
            visit.speeds[rank, partner[rank]] = Speed(told["latency_s"], told["bytes_per_s"])
        elif partner[rank] not in visit.silent:
            visit.failed.setdefault((min(rank, partner[rank]), max(rank, partner[rank])), told["failed"])


def _is_order(told: Any, board: RankMessenger) -> bool:
    if not isinstance(told, dict):
        return False
    if "over" in told:
        return isinstance(told.get("complete"), bool)
    peer = told.get("meet", board.rank)
    known = peer is None or (type(peer) is int and 0 <= peer < board.size and peer != board.rank)
    return known and isinstance(told.get("seconds"), float)


def _is_answer(told: Any) -> bool:
    if not isinstance(told, dict):
        return False
    if "failed" in told:
        return isinstance(told["failed"], str)
    return all(isinstance(told.get(name), float) and told[name] > 0 for name in ("latency_s", "bytes_per_s"))


def _meet(board: RankMessenger, peer: int, seconds: float) -> dict[str, Any]:
    try:
        with board.line(peer, PATIENCE_S) as line:
            found = meet(line, first=board.rank < peer, seconds=seconds)
    except CommTimeout:
        return {"failed": f"no answer within {PATIENCE_S:g} s"}
    except CommError as error:
        return {"failed": error.reason or error.message}
    return {"latency_s": found.latency_s, "bytes_per_s": found.bytes_per_s}


def _others(visit: PairwiseResult) -> list[int]:
    return sorted(visit.facts.keys() - visit.silent.keys() - {0})


def pair_turns(nodes: Sequence[int]) -> list[list[Pair]]:
    """nodes: of each rank its node, as any numbers. A list of turns, each a list of pairs (lower rank first)."""
    ranks: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks.setdefault(node, []).append(rank)
    found = []
    for games in tournament(list(ranks)):
        found += _side_by_side([list(product(ranks[one], ranks[other])) for one, other in games])
    return found + _side_by_side([list(combinations(members, 2)) for members in ranks.values()])


def tournament(players: Sequence[int]) -> list[list[Pair]]:
    """Rounds in which every player meets every other once: all but the first move around a table."""
    seats: list[int | None] = [*players, *([None] if len(players) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(one, other) for one, other in facing if one is not None and other is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def _side_by_side(columns: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
    """Turns of which each takes one pair of every column that has one left."""
    return [
        sorted((min(pair), max(pair)) for pair in row if pair is not None) for row in zip_longest(*columns) if any(row)
    ]
