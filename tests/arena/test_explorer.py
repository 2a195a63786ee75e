"""The protocol under every order of events: no fault in the real one, and every fault that was put in is found."""

import sys
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from explorer import explore
from node_model import NodeModel
from node_rules import Bounds, Rules, Size, keep_then_change
from node_state import State
from node_words import VIEW_AT, WORDS, Write

import unisono
from unisono.arena import protocol
from unisono.arena.protocol import DOUBTING, READY, WAITING, View, Words, pack

SIZES = {
    repr(size): size
    for size in (
        Size(rounds=1, deaths=1, joins=1),
        Size(ranks=2, rounds=3, deaths=1, joins=1, spare=True),
        Size(rounds=1, deaths=2),
        Size(ranks=2, rounds=2, deaths=2, joins=1, early=True),
        Size(rounds=2, deaths=1, norms=True),
        Size(ranks=2, rounds=2, deaths=2, joins=1),
        Size(rounds=2, deaths=1),
        Size(rounds=1, deaths=1, cells=6),
        Size(ranks=4, rounds=1, deaths=0),
        Size(ranks=2, rounds=2, deaths=1, joins=1, courier=True),
    )
}
"""In this order every second one takes as long as the others: two processes explore them."""


@cache
def explored() -> dict[str, list[Any]]:
    """By size: fault, trace, number of ends."""

    def work(world: unisono.World) -> dict[str, list[Any]]:
        mine = {name: explore(NodeModel(SIZES[name])) for name in list(SIZES)[world.rank :: world.size]}
        return {name: [found.fault, found.trace, len(found.ends)] for name, found in mine.items()}

    one, other = unisono.run(work, 2)
    return one | other


@pytest.mark.parametrize("size", SIZES, ids=SIZES)
def test_no_order_of_events_leads_to_a_fault(size):
    fault, trace, ends = explored()[size]
    assert fault == "", "\n".join(trace)
    assert ends


@pytest.mark.parametrize("size", [Size(rounds=1, deaths=1), Size(ranks=2, rounds=1, deaths=2, joins=1)], ids=repr)
def test_hurrying_through_what_nobody_sees_leaves_out_no_end(size):
    def ends(size: Size) -> set[State]:
        found = explore(NodeModel(size))
        # Where everybody died the supervisor may have been anywhere.
        return {end for end in found.ends if any(rank.stage == "done" for rank in end.ranks) and not end.boss.todo}

    assert ends(size) == ends(replace(size, patient=True))


def test_requests_are_obeyed_by_all_at_one_round_whichever_that_is():
    halting = explore(NodeModel(Size(ranks=2, rounds=3, deaths=1, halt=True)))
    copying = explore(NodeModel(Size(ranks=2, rounds=3, deaths=1, spare=True)))
    assert halting.fault == copying.fault == ""
    assert {rank.position - 1 for end in halting.ends for rank in end.ranks if rank.stage == "done"} == {1, 2, 3}
    assert {end.told for end in copying.ends} == {0, 1, 2}


# --- variants broken on purpose --------------------------------------------------------------------------------------


def judged_by_each(words: Words, view: View) -> View:
    return protocol.outcome(words, view, view.members)


def the_dead_forgotten(words: Words, old: View, members: Collection[int]) -> View:
    survivors = tuple(slot for slot in old.members if slot in members)
    found = protocol.outcome(words, replace(old, members=survivors), members)
    return replace(found, dealers=old.members if found.dealers else ())


def marked_after(state: State, slot: int, position: int, bounds: Bounds) -> list[Write]:
    writes = keep_then_change(state, slot, position, bounds)
    return sorted(writes, key=lambda write: write[0] == WORDS)


def marked_before_the_copy(state: State, slot: int, position: int, bounds: Bounds) -> list[Write]:
    writes = keep_then_change(state, slot, position, bounds)
    return sorted(writes, key=lambda write: write[0] != WORDS)


def number_before_row(words: Words, view: View, size: int) -> None:
    words[VIEW_AT] = view.number
    protocol.publish(words, view, size)


def row_not_looked_after(words: Words, size: int) -> View | None:
    """A row may be written anew while somebody who is not yet a member reads it."""
    numbers = [words[VIEW_AT]]

    class Frozen:
        def __getitem__(self, at: int) -> int:
            return numbers[0] if at == VIEW_AT else words[at]

    return protocol.current_view(Frozen(), size)


def makers_of_two_views(words: Words, size: int, position: int) -> tuple[int, ...] | None:
    """Flags of the view that comes next are large enough for the one before."""
    view = protocol.current_view(words, size)
    if view.position == position:
        return view.dealers if view.reached == READY else None
    return view.members if protocol.arrived(words, view.members, pack(view.number, position, READY)) else None


@pytest.mark.parametrize(
    ("broken", "size", "fault"),
    [
        ({"judge": judged_by_each}, Size(rounds=1), "rank 2 sums, for round 1"),
        ({"outcome": the_dead_forgotten}, Size(rounds=1), "rank 0 sums, for round 1"),
        ({"all_still": lambda words, living: True}, Size(rounds=1), "rank 1 sums, for round 1"),
        ({"update": marked_after}, Size(rounds=1), "instead of 0"),
        ({"update": marked_before_the_copy}, Size(ranks=2, rounds=2), "instead of 1"),
        ({"restore": lambda state, view: []}, Size(rounds=1), "instead of 0"),
        ({"makers": lambda view, position: view.members}, Size(rounds=1), "rank 0 sums, for round 1"),
        ({"publish": number_before_row}, Size(rounds=1), "while the supervisor's is"),
        ({"current_view": row_not_looked_after}, Size(rounds=1, joins=1, waiting=1), "while the supervisor's is"),
        ({"told_after": lambda number: 0}, Size(ranks=2, rounds=1, joins=1, early=True), "while the supervisor's is"),
        ({"over": lambda ranks: any(rank.stage == "done" for rank in ranks)}, Size(rounds=1), "a hang"),
        ({"makers_of": makers_of_two_views}, Size(ranks=2, rounds=1, joins=1, courier=True), "the courier sums, for"),
    ],
    ids=[
        "each survivor decides by itself",
        "the decision forgets the dead",
        "the supervisor decides before all stand still",
        "the mark is set after the change",
        "the mark is set before the copy",
        "nothing is restored",
        "gradients are taken from the new members",
        "the number is published before the row",
        "a row is read without a second look at the number",
        "a replacement enters any view that has its slot",
        "no new view once somebody has finished",
        "a courier does not look whether somebody joined",
    ],
)
def test_every_fault_that_is_put_in_is_found(broken, size, fault):
    found = explore(NodeModel(size, replace(Rules(), **broken)))
    print("\n".join([*found.trace, f"FAULT: {found.fault}"]))
    assert fault in found.fault
    assert found.trace


def test_ranks_that_judge_by_themselves_disagree_about_a_commit():
    """The fault that no number of random kills showed: one looks before a late flag, one after it."""

    def commit_judged_by_each(words: Words, view: View) -> View | None:
        found = judged_by_each(words, view)
        return found if found.position else None

    found = explore(NodeModel(Size(rounds=1), replace(Rules(), judge=commit_judged_by_each)))
    assert found.fault == "round 1 is taken for committed: the cells are (11, 11, 11) instead of 1"
    assert "the supervisor decides view 2 (0,) from commit of round 1" in found.trace
    assert "rank 0 enters view 2 (0,) from gradients ready of round 1, dealers (0, 1, 2)" in found.trace


def test_asking_for_a_freeze_first_is_harmless_where_ranks_do_not_decide():
    """It only makes more ranks stand still: what was reached is decided by the supervisor all the same."""

    def freeze_first(words: Words, slot: int, view: View, flag: int, pc: int) -> int:
        if pc == WAITING and protocol.freezing(words, view.number):
            return DOUBTING
        return protocol.advance(words, slot, view, flag, pc)

    assert explore(NodeModel(Size(rounds=1), replace(Rules(), advance=freeze_first))).fault == ""
