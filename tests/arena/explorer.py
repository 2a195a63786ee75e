"""Explorer: every state that a state machine can come into, the shortest way to a fault, and whether anybody hangs.

The one idea: breadth first with a set of states seen. A fault on the way is reported with the shortest trace; when all
states are known, those from which no path leads to an end are hangs. Deaths and replacements do not count as a way out:
nobody may depend on them.

    python tests/arena/explorer.py --ranks 3 --rounds 3 --deaths 2 --joins 1        # prints the number of states
    found = explore(NodeModel(Size(deaths=2))); found.states, found.fault, found.trace

Limits: some 50,000 transitions a second and 500 bytes a state. 3 ranks, 2 rounds, one death and one replacement are
260,000 states; each further death or replacement makes that five to ten times as many.
"""

import argparse
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import final

from node_model import NodeModel
from node_rules import Size
from node_state import Fault, State, Step


@final
@dataclass(frozen=True)
class Found:
    """What an exploration found."""

    states: int
    transitions: int
    ends: list[State] = field(repr=False)
    """Where nobody has anything left to do."""
    fault: str = ""
    """Empty if every property holds."""
    trace: list[str] = field(default_factory=list)
    """What happened on the shortest way to the fault, one line a transition."""


def explore(model: NodeModel) -> Found:
    """All states that can be reached, or those up to the first fault."""
    first = model.first()
    numbers, states, parents = {first: 0}, [first], array("l", [-1])
    pool: dict[object, object] = {}
    sources, targets, ends = array("l"), array("l"), array("l")
    transitions = at = 0

    def found(fault: str = "", here: int = 0) -> Found:
        trace = _trace(model, states, parents, here) if fault else []
        return Found(len(states), transitions, [states[number] for number in ends], fault, trace)

    while at < len(states):
        state = states[at]
        try:
            if model.ended(state):
                ends.append(at)
            for _, new, mishap in model.successors(state):
                transitions += 1
                number = numbers.get(new)
                if number is None:
                    number = len(states)
                    states.append(State(*(pool.setdefault(part, part) for part in new)))  # equal parts are kept once
                    numbers[states[-1]] = number
                    parents.append(at)
                if not mishap:
                    sources.append(at)
                    targets.append(number)
        except Fault as fault:
            return found(str(fault), at)
        at += 1
    stuck = _first_stuck(len(states), sources, targets, ends)
    return found() if stuck is None else found("a hang: from here nobody comes to an end", stuck)


def _first_stuck(count: int, sources: Sequence[int], targets: Sequence[int], ends: Sequence[int]) -> int | None:
    """The earliest state from which no end can be reached."""
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    good, todo = bytearray(count), list(ends)
    for number in todo:
        good[number] = 1
    while todo:
        for number in before[todo.pop()]:
            if not good[number]:
                good[number] = 1
                todo.append(number)
    stuck = good.find(0)
    return None if stuck < 0 else stuck


def _trace(model: NodeModel, states: list[State], parents: Sequence[int], at: int) -> list[str]:
    lines = []
    while (parent := parents[at]) >= 0:
        lines.append(next(what for what, new, _ in _until_fault(model, states[parent]) if new == states[at]))
        at = parent
    return lines[::-1]


def _until_fault(model: NodeModel, state: State) -> Iterator[Step]:
    try:
        yield from model.successors(state)
    except Fault:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in fields(Size):
        kind = {"action": "store_true"} if option.type is bool else {"type": int, "default": option.default}
        parser.add_argument(f"--{option.name}", **kind)
    size = Size(**vars(parser.parse_args()))
    begun = time.perf_counter()
    found = explore(NodeModel(size))
    print(f"{size}: {found.states} states, {found.transitions} transitions, {time.perf_counter() - begun:.1f} s")
    print("\n".join([*found.trace, f"FAULT: {found.fault}"]) if found.fault else "no fault")
    raise SystemExit(bool(found.fault))


if __name__ == "__main__":
    main()
