"""What the supervisor does, one small transition at a time: `Supervisor._reform`, in few lines.

The one idea: a death or a replacement that waits leads to a freeze, the freeze to a decision, the decision to a view
whose words are published one by one. Replacements are forked, or not, at any time after the view without the dead one
(or before it, if the size says `early`); the supervisor may not have heard yet that they are ready, and leave them for
a later view.

    list(Supervision(Size(), Rules()).steps(state))
"""

from collections.abc import Iterator
from itertools import combinations
from typing import final

from node_rules import Rules, Size
from node_state import Boss, Rank, State, Step, check_cells, named, with_rank, written
from node_words import WORDS, Recording, Write

from unisono.arena import protocol
from unisono.arena.protocol import COMMIT
from unisono.arena.requests import Requests


@final
class Supervision:
    """The transitions of the supervisor."""

    def __init__(self, size: Size, rules: Rules) -> None:
        self._size, self._rules = size, rules

    def steps(self, state: State) -> Iterator[Step]:
        """What the supervisor may do next."""
        boss, ranks, members = state.boss, state.ranks, state.boss.view.members
        if boss.todo:
            state = written(state, boss.todo[:1])
            left = boss._replace(todo=boss.todo[1:], stage=boss.stage if boss.todo[1:] else "watch")
            yield f"the supervisor publishes {named(boss.view)}: {boss.todo[0]}", state._replace(boss=left), False
            return
        joining = [slot for slot in boss.waiting if ranks[slot].works]
        here = [slot for slot in members if ranks[slot].works and slot not in boss.waiting]
        lost = any(ranks[slot].stage == "dead" or slot in boss.waiting for slot in members)
        if boss.stage == "watch":
            yield from self._forks(state)
            yield from self._requests(state)
            if joining or (lost and here and not self._rules.over(ranks)):
                log: list[Write] = []
                protocol.raise_freeze(Recording(state.words, WORDS, log))
                state = written(state, log)
                yield "the supervisor raises the freeze", state._replace(boss=boss._replace(stage="freeze")), False
        elif not joining and self._rules.over(ranks):
            yield "the supervisor gives up", state._replace(boss=boss._replace(stage="watch")), False
        elif self._rules.all_still(state.words, here):
            # Those who are not yet known to be ready are let in later.
            for count in range(1 if joining and not lost else 0, len(joining) + 1):
                for joined in combinations(joining, count):
                    if here or joined:
                        yield self._decide(state, [*here, *joined])

    def _decide(self, state: State, members: list[int]) -> Step:
        view = self._rules.outcome(state.words, state.boss.view, members)
        state = written(state, self._rules.restore(state, view))
        check_cells(state.cells, view.position - (view.reached != COMMIT), f"the supervisor decides {named(view)}")
        log: list[Write] = []
        self._rules.publish(Recording(state.words, WORDS, log), view, self._size.ranks)
        todo = tuple(write for write in log if state.words[write[1]] != write[2])
        left = (slot for slot in state.boss.waiting if state.ranks[slot].works and slot not in members)
        boss = Boss("publish", view, todo, tuple(left))
        return f"the supervisor decides {named(view)}", state._replace(boss=boss), False

    def _forks(self, state: State) -> Iterator[Step]:
        boss = state.boss
        for slot, rank in enumerate(state.ranks):
            if state.joins and rank.stage == "dead" and (self._size.early or slot not in boss.view.members):
                after = self._rules.told_after(boss.view.number)
                waiting = tuple(sorted({*boss.waiting, slot}))
                forked = with_rank(state, slot, Rank("look", after=after))
                forked = forked._replace(boss=boss._replace(waiting=waiting), joins=state.joins - 1)
                yield f"a replacement of rank {slot} is forked and told {after}", forked, True

    def _requests(self, state: State) -> Iterator[Step]:
        """Asks, at most once; is done with the copy of which it was told."""
        now, log = Requests(state.words), list[Write]()
        later = Requests(Recording(state.words, WORDS, log))
        if self._size.halt:
            later.ask_to_halt()
            if state.words[log[0][1]] != log[0][2]:
                yield "the supervisor asks to halt", written(state, log), True
            log.clear()
        if self._size.spare and not now.spare_at:
            later.ask_for_spare()
            if log[0][2] == 1:
                yield "the supervisor asks for a copy", written(state, log), True
            log.clear()
        if state.told and now.spare_after(state.told):
            check_cells(state.spare, state.told, f"the supervisor has written the copy of round {state.told}")
            later.written()
            yield f"the supervisor has written the copy of round {state.told}", written(state, log), True
