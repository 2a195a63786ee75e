"""What a courier does, one small transition at a time: `launch/errand.py`'s `Rounds`, in few lines.

The one idea: it is no member, so nobody waits for it, and the view may change between any two of its looks. It is
checked that what it sends to other machines are gradients which all exist, for its round and in one dealing. Ranks sum
only what it has brought back.

    list(Couriers(Size(courier=True), Rules()).steps(state))
"""

from collections.abc import Iterator
from typing import final

from node_rules import Rules, Size
from node_state import Fault, State, Step
from node_words import Replay, Suspended


@final
class Couriers:
    """The transitions of one, if there is one."""

    def __init__(self, size: Size, rules: Rules) -> None:
        self._size, self._rules = size, rules

    def steps(self, state: State) -> Iterator[Step]:
        """What it may do next."""
        if not self._size.courier or not any(rank.works for rank in state.ranks):
            return
        position = state.served + 1
        words = Replay(state.words, state.looking)
        try:
            makers = self._rules.makers_of(words, self._size.ranks, position)
        except Suspended:
            looking = tuple(words.seen)
            yield f"the courier reads {looking[len(state.looking) :]}", state._replace(looking=looking), False
            return
        if makers is None:
            yield "the courier has seen nothing to do", state._replace(looking=()), False
            return
        found = [state.gradients[maker] for maker in makers]
        if found != [(position, makers)] * len(makers):
            raise Fault(f"the courier sums, for round {position} and makers {makers}, gradients {found}")
        yield f"the courier serves round {position}", state._replace(served=position, looking=()), False
