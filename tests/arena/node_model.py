"""A node as a state machine: ranks and the supervisor, one small transition at a time.

The one idea: what the strategy and the supervisor do around the protocol is retold in few lines (`node_ranks.py`,
`node_supervisor.py`), and the protocol itself is its own code (`node_rules.py`). Each transition reads once and writes
one word, cell or gradient; ranks and replacements die between any two, and leave in the memory what they had written.

    model = NodeModel(Size(ranks=3, rounds=2, deaths=1)); list(model.successors(model.first()))

Transitions that nobody else can see (copying, marking and changing one's own chunk; the row of a view that nobody reads
yet) are taken at once, unless the size is `patient`: what others do before or after them makes no difference, only
deaths between them do, and those are explored.

Limits: memory is sequentially consistent here; processors that reorder stores are the business of `arena/fence.py`.
"""

from collections.abc import Iterator
from typing import final

from node_courier import Couriers
from node_ranks import Ranks
from node_rules import Rules, Size
from node_state import Boss, Fault, Rank, State, Step, check_cells, with_rank
from node_supervisor import Supervision
from node_words import VIEW_AT, WORDS

from unisono.arena import protocol


@final
class NodeModel:
    """The transitions."""

    def __init__(self, size: Size, rules: Rules | None = None) -> None:
        self.size, rules = size, rules or Rules()
        self._ranks, self._supervision, self._courier = (
            Ranks(size, rules),
            Supervision(size, rules),
            Couriers(size, rules),
        )

    def first(self) -> State:
        """The first view is there, and all ranks begin."""
        size, words = self.size, [0] * protocol.words_needed(self.size.ranks)
        view = protocol.first_view(words, range(size.waiting, size.ranks), size.ranks)
        zeros, blank = (0,) * size.cells, ((0, ()),) * size.ranks
        began, waits = self._ranks.begin(view, 1, words, zeros), Rank("look", after=view.number)
        ranks = tuple(began if slot in view.members else waits for slot in range(size.ranks))
        boss = Boss("watch", view, waiting=tuple(range(size.waiting)))
        return State(tuple(words), zeros, zeros, blank, zeros, zeros, ranks, boss, size.deaths, size.joins)

    def ended(self, state: State) -> bool:
        """Whether nobody has anything left to do; what was left behind is checked."""
        if any(rank.works for rank in state.ranks):
            return False
        last = {rank.position - 1 for rank in state.ranks if rank.stage == "done"}
        if len(last) > 1:
            raise Fault(f"ranks ended after different rounds: {last}")
        for position in last:
            check_cells(state.cells, position, f"the run has ended after round {position}")
        return True

    def successors(self, state: State) -> Iterator[Step]:
        """Everything that may happen next."""
        alone = None if self.size.patient else self._unseen(state)
        for slot, rank in enumerate(state.ranks):
            if rank.works and alone in (None, slot):
                yield from self._ranks.steps(state, slot)
                if state.deaths:
                    yield (
                        f"rank {slot} dies",
                        with_rank(state, slot, Rank("dead"))._replace(deaths=state.deaths - 1),
                        True,
                    )
        if alone in (None, -1):
            yield from self._supervision.steps(state)
        if alone is None:
            yield from self._courier.steps(state)

    def _unseen(self, state: State) -> int | None:
        """Whose next transition nobody else can see: a rank's slot, -1 for the supervisor, None if nobody's."""
        for slot, rank in enumerate(state.ranks):
            if rank.todo and not (rank.todo[0][0] == WORDS and rank.todo[0][1] < protocol.line(0)):
                return slot
        todo = state.boss.todo
        row = todo and todo[0][1] >= protocol.line(self.size.ranks) and state.words[VIEW_AT] < state.boss.view.number
        return -1 if row and not state.looking and not any(rank.seen for rank in state.ranks) else None
