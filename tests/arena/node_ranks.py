"""What a rank does, one small transition at a time: the loop of a run, `Sync._until_done` and `Member`, in few lines.

The one idea: each transition reads once and writes one word, cell or gradient. On the way it is checked that whoever
takes a round for committed finds every cell as that round leaves it, that an update sums gradients which all exist, for
its round and in one dealing, and that whoever enters a view finds the one that was decided.

    list(Ranks(Size(), Rules()).steps(state, slot=0))
"""

from collections.abc import Iterator, Sequence
from typing import final

from node_rules import Bounds, Rules, Size
from node_state import Fault, Rank, State, Step, check_cells, named, with_rank, written
from node_words import GRADIENTS, SPARE, SQUARES, VIEW_AT, WORDS, Recording, Replay, Suspended, Write

from unisono.arena import protocol
from unisono.arena.protocol import COMMIT, DOUBTING, NORMS, PASSED, PHASES, READY, STILL, TOLD, WAITING, View
from unisono.arena.requests import Requests

_TARGETS = (
    "the word",
    "the cell",
    "the old value of cell",
    "its gradients",
    "the squares of cell",
    "the copy of cell",
    "the update of cell",
)


@final
class Ranks:
    """The transitions of ranks."""

    def __init__(self, size: Size, rules: Rules) -> None:
        self._size, self._rules = size, rules

    def steps(self, state: State, slot: int) -> Iterator[Step]:
        """What the rank in `slot` may do next."""
        rank = state.ranks[slot]
        if rank.todo:
            kind, at, value = rank.todo[0]
            left = with_rank(written(state, rank.todo[:1]), slot, rank._replace(todo=rank.todo[1:]))
            yield f"rank {slot} writes {_TARGETS[kind]} {at}: {value}", left, False
        elif rank.stage == "pause":
            yield self._pause(state, slot, rank)
        elif rank.stage == "settle":
            yield self._settle(state, slot, rank)
        elif rank.stage == "arrive":
            yield self._arrive(state, slot, rank)
        elif rank.stage == "wait":
            yield from self._wait(state, slot, rank)
        elif rank.stage == "look":
            yield from self._look(state, slot, rank)
        elif rank.stage == "sum":
            if not self._size.courier or state.served >= rank.position:
                yield self._sum(state, slot, rank)
            elif protocol.freezing(state.words, rank.view.number):  # `Member.wait`
                rank = rank._replace(stage="wait", phase=READY, pc=DOUBTING)
                yield f"rank {slot} sees the freeze", with_rank(state, slot, rank), False
        else:
            yield self._update(state, slot, rank)

    def begin(self, view: View, position: int, words: Sequence[int], cells: Sequence[int]) -> Rank:
        """As the loop of a run and, in it, the top of `Sync._until_done`."""
        while (view.position, view.reached) >= (position, COMMIT):
            position += 1
        if (view.position, view.reached) <= (position - 1, COMMIT):  # else others may be updating already
            check_cells(cells, position - 1, f"round {position - 1} is taken for committed")
        if position > self._size.rounds or Requests(words).halts_after(position - 1):
            return Rank("done", view, position)
        return Rank("sum" if view.position == position else "pause", view, position)

    def _pause(self, state: State, slot: int, rank: Rank) -> Step:
        """Between two pieces of work: `Member.pause`."""
        if protocol.freezing(state.words, rank.view.number):
            return (
                f"rank {slot} sees the freeze",
                with_rank(state, slot, rank._replace(stage="wait", pc=DOUBTING)),
                False,
            )
        what = f"rank {slot} computes gradients of round {rank.position}"
        check_cells(state.cells, rank.position - 1, what)
        todo: list[Write] = [(GRADIENTS, slot, (rank.position, rank.view.members))]
        if Requests(state.words).spare_after(rank.position - 1):
            todo += [(SPARE, cell, state.cells[cell]) for cell in range(*self._bounds(slot, rank.view))]
        stage = "settle" if (self._size.halt or self._size.spare) and slot == rank.view.members[0] else "arrive"
        return what, with_rank(state, slot, rank._replace(stage=stage, phase=READY, todo=tuple(todo))), False

    def _settle(self, state: State, slot: int, rank: Rank) -> Step:
        log: list[Write] = []
        Requests(Recording(state.words, WORDS, log)).settle(rank.position, due=False)
        rank = rank._replace(stage="arrive", todo=tuple(log))
        return f"rank {slot} settles requests for round {rank.position}", with_rank(state, slot, rank), False

    def _arrive(self, state: State, slot: int, rank: Rank) -> Step:
        if rank.phase == COMMIT:
            self._check_gradients(state, slot, rank)
        log: list[Write] = []
        flag = protocol.pack(rank.view.number, rank.position, rank.phase)
        protocol.arrive(Recording(state.words, WORDS, log), slot, flag)
        what = f"rank {slot} arrives at {PHASES[rank.phase]} of round {rank.position} in view {rank.view.number}"
        return what, with_rank(written(state, log), slot, rank._replace(stage="wait", pc=WAITING)), False

    def _wait(self, state: State, slot: int, rank: Rank) -> Iterator[Step]:
        """`Member._wait` and `Member._regroup`."""
        log: list[Write] = []
        flag = protocol.pack(rank.view.number, rank.position, rank.phase)
        words = Recording(state.words, WORDS, log) if rank.pc == DOUBTING else state.words
        pc = self._rules.advance(words, slot, rank.view, flag, rank.pc)
        if pc == PASSED:
            if rank.phase == COMMIT:
                rank = self.begin(rank.view, rank.position + 1, state.words, state.cells)
            else:
                ready = rank.phase == READY
                rank = Rank("sum" if ready else "update", rank.view, rank.position)
            yield f"rank {slot} sees that everybody has come", with_rank(state, slot, rank), False
        elif pc == TOLD:
            rank = rank._replace(stage="look", pc=0)
            yield f"rank {slot} sees that there is a new view", with_rank(state, slot, rank), False
        elif pc != rank.pc:
            judged = self._rules.judge(state.words, rank.view) if pc == STILL else None
            what = {STILL: "stands still", DOUBTING: "misses somebody", WAITING: "sees no freeze"}[pc]
            yield (
                f"rank {slot} {what}",
                with_rank(written(state, log), slot, rank._replace(pc=pc, judged=judged)),
                False,
            )

    def _look(self, state: State, slot: int, rank: Rank) -> Iterator[Step]:
        """`current_view`, which reads first a number and then a row; who joins looks until it is in a later view."""
        joins = rank.view is None
        if joins and not rank.seen and state.words[VIEW_AT] <= rank.after:
            return
        words = Replay(state.words, rank.seen)
        try:
            found = self._rules.current_view(words, self._size.ranks)
        except Suspended:
            looking = with_rank(state, slot, rank._replace(seen=tuple(words.seen)))
            yield f"rank {slot} reads of the view {words.seen[len(rank.seen) :]}", looking, False
            return
        if joins and (found.number <= rank.after or slot not in found.members):
            yield f"rank {slot} is not yet in {named(found)}", with_rank(state, slot, rank._replace(seen=())), False
            return
        if found != state.boss.view:
            raise Fault(f"rank {slot} enters {found}, while the supervisor's is {state.boss.view}")
        if rank.judged is not None:
            found = View(found.number, found.members, rank.judged.position, rank.judged.reached, rank.judged.dealers)
        entered = self.begin(found, max(1, rank.position), state.words, state.cells)
        yield f"rank {slot} enters {named(found)}", with_rank(state, slot, entered), False

    def _sum(self, state: State, slot: int, rank: Rank) -> Step:
        self._check_gradients(state, slot, rank)
        what = f"rank {slot} sums the gradients of round {rank.position}"
        copied = Requests(state.words).spare_at
        if slot == rank.view.members[0] and state.told < copied < rank.position:
            check_cells(state.spare, copied, f"rank {slot} tells of the copy of round {copied}")
            what, state = f"{what} and tells of the copy of round {copied}", state._replace(told=copied)
        if self._size.norms:
            todo = tuple((SQUARES, cell, rank.position) for cell in range(*self._bounds(slot, rank.view)))
            return what, with_rank(state, slot, rank._replace(stage="arrive", phase=NORMS, todo=todo)), False
        return what, with_rank(state, slot, rank._replace(stage="update")), False

    def _update(self, state: State, slot: int, rank: Rank) -> Step:
        if self._size.norms and set(state.squares) != {rank.position}:
            raise Fault(f"rank {slot} uses squares of rounds {state.squares} in round {rank.position}")
        todo = self._rules.update(state, slot, rank.position, self._bounds(slot, rank.view))
        rank = rank._replace(stage="arrive", phase=COMMIT, todo=tuple(todo))
        return f"rank {slot} begins the update of round {rank.position}", with_rank(state, slot, rank), False

    def _bounds(self, slot: int, view: View) -> Bounds:
        index, count, cells = view.members.index(slot), len(view.members), self._size.cells
        return cells * index // count, cells * (index + 1) // count

    def _check_gradients(self, state: State, slot: int, rank: Rank) -> None:
        makers = self._rules.makers(rank.view, rank.position)
        found = [state.gradients[maker] for maker in makers]
        if not makers or found != [(rank.position, makers)] * len(makers):
            raise Fault(f"rank {slot} sums, for round {rank.position} and makers {makers}, gradients {found}")
