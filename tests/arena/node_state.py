"""The state of a node: what its memory holds, where its ranks and its supervisor are, and how it is written down.

A cell of the parameters gets one more digit by each update (2 -> 23 in round 3): an update that is missing, done twice
or half done shows in the number. Rounds are therefore fewer than ten.

    state = written(state, [(CHANGE, 0, 3)]); check_cells(state.cells, 3, "round 3 is taken for committed")
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from node_words import CELLS, CHANGE, Write

from unisono.arena.protocol import PHASES, View


class Rank(NamedTuple):
    """One rank. `stage` names what it does next, once `todo` is written."""

    stage: str
    view: View | None = None
    position: int = 0
    phase: int = 0
    pc: int = 0
    todo: tuple[Write, ...] = ()
    after: int = 0
    """A replacement looks for a view later than this number."""
    seen: tuple[int, ...] = ()
    """While it reads a view: what it has read of it."""
    judged: View | None = None

    @property
    def works(self) -> bool:
        return self.stage not in ("dead", "done")


class Boss(NamedTuple):
    """The supervisor."""

    stage: str
    view: View
    todo: tuple[Write, ...] = ()
    waiting: tuple[int, ...] = ()
    """Replacements that have not been let in."""


class Fault(Exception):
    """A property does not hold."""


class State(NamedTuple):
    """Everything."""

    words: tuple[int, ...]
    cells: tuple[int, ...]
    twins: tuple[int, ...]
    gradients: tuple[Any, ...]
    """By slot: (round, the members among whom it was dealt)."""
    squares: tuple[int, ...]
    """By cell: the round whose sums of squares are there."""
    spare: tuple[int, ...]
    """The copy of which a snapshot is written."""
    ranks: tuple[Rank, ...]
    boss: Boss
    deaths: int
    joins: int
    told: int = 0
    """The round of which the supervisor was last told that its copy is complete."""
    served: int = 0
    """The last round that the courier has exchanged with other machines."""
    looking: tuple[int, ...] = ()
    """While it looks whether the next one is ready: what it has read."""


Step: TypeAlias = tuple[str, State, bool]
"""What happens, what is then, and whether it is an event that nobody may count on (a death, a replacement)."""


def check_cells(cells: Sequence[int], position: int, what: str) -> None:
    """All cells are as round `position` leaves them."""
    expected = int("".join(map(str, range(1, position + 1))) or "0")
    if set(cells) != {expected}:
        raise Fault(f"{what}: the cells are {tuple(cells)} instead of {expected}")


def with_rank(state: State, slot: int, rank: Rank) -> State:
    """The state in which the rank in `slot` is another one."""
    ranks = state.ranks
    return state._replace(ranks=(*ranks[:slot], rank, *ranks[slot + 1 :]))


def written(state: State, writes: Sequence[Write]) -> State:
    """The state after these writes."""
    fields = list(state)
    for kind, at, value in writes:
        if kind == CHANGE:
            kind, value = CELLS, fields[CELLS][at] * 10 + value  # noqa: PLW2901
        fields[kind] = (*fields[kind][:at], value, *fields[kind][at + 1 :])
    return State(*fields)


def named(view: View) -> str:
    """A view in words."""
    dealers = f", dealers {view.dealers}" if view.dealers else ""
    return f"view {view.number} {view.members} from {PHASES[view.reached]} of round {view.position}{dealers}"
