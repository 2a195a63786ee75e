"""PairwiseResult: all ranks, two by two: who answers, how long a message takes, how many bytes pass in a second.

    visit = lead(board, facts, dog); dismiss(board, visit)       # on rank 0
    follow(board, facts, dog)                                    # on every other rank

The one idea: rank 0 says who meets whom next, and hears from both how it went, so that nobody waits for a rank that has
fallen silent twice: it is left out from then on, and named.

Limits: ranks that rank 0 cannot reach count as silent, though others may reach them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from unisono.doctor.machines.facts import are_facts
from unisono.doctor.machines.link import Speed, meet
from unisono.doctor.machines.message_board import RankMessenger
from unisono.doctor.machines.pair_schedule import pair_turns
from unisono.doctor.machines.watchdog import Watchdog
from unisono.errors import CommError, CommTimeout

PATIENCE_S = 5.0
"""Of one rank with another, for every single message."""
_ARRIVING_S = 10.0
_TURN_S = 3 * PATIENCE_S
"""To connect, to ask, to be asked."""
_BUDGET_S, _MOST_S, _LEAST_S = 20.0, 0.02, 0.001
"""For all turns together; of that, for the longest message of one."""


@final
@dataclass(frozen=True)
class PairwiseResult:
    """What came of it. Ranks by number."""

    transport: str
    size: int
    facts: Mapping[int, dict[str, Any]]
    """Of those that answered at all."""
    silent: dict[int, str] = field(default_factory=dict)
    """Ranks that stopped to answer, and when."""
    speeds: dict[tuple[int, int], Speed] = field(default_factory=dict)
    """From one rank to another, as the first one measured."""
    failed: dict[tuple[int, int], str] = field(default_factory=dict)
    """Pairs (lower rank first) that could not exchange messages, and why."""

    def colours(self) -> dict[int, int]:
        """Of each rank that answered: the lowest rank of its node."""
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
    """On rank 0: tells everybody that answers that it is over, and whether somebody is silent."""
    for rank in _others(visit):
        board.tell(rank, {"over": True, "complete": not visit.silent})
    deadline = time.monotonic() + _TURN_S
    for rank in _others(visit):  # whoever serves the store stays until the others have read that
        board.hear(rank, max(0.0, deadline - time.monotonic()))


def follow(board: RankMessenger, facts: dict[str, Any], dog: Watchdog) -> bool:
    """On every other rank: until rank 0 says that it is over; whether nobody is silent. A `CommError` if rank 0 is."""
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
