"""Size and rules of a node that is explored: what the protocol does is done by its own functions.

The one idea: `Rules` names every function through which the protocol acts; a variant that is broken on purpose replaces
one of them, and the explorer must find out.

    dataclasses.replace(Rules(), all_still=lambda words, living: True)       # a supervisor without patience
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias, final

from node_state import Rank, State
from node_words import CELLS, CHANGE, TWINS, WORDS, Recording, Write

from unisono.arena import protocol
from unisono.arena.protocol import READY, View, Words
from unisono.arena.undo import Undo

Bounds: TypeAlias = tuple[int, int]


def keep_then_change(state: State, slot: int, position: int, bounds: Bounds) -> list[Write]:
    """The writes of an update, in their order: those of `Undo.keep`, then every cell."""
    log: list[Write] = []
    words, twins = Recording(state.words, WORDS, log), Recording(state.twins, TWINS, log)
    undo = Undo(words, len(state.ranks), [list(state.cells)], [twins])
    undo.keep(slot, position, *bounds)
    return log + [(CHANGE, cell, position) for cell in range(*bounds)]


def restore(state: State, view: View) -> list[Write]:
    """As `Shared.restore`."""
    log: list[Write] = []
    if view.reached == READY:
        words, cells = Recording(state.words, WORDS, log), Recording(state.cells, CELLS, log)
        Undo(words, len(state.ranks), [cells], [list(state.twins)]).restore(view.position)
    return log


@final
@dataclass(frozen=True)
class Rules:
    """What the node does. A variant that is broken on purpose replaces one of them."""

    advance: Callable[[Words, int, View, int, int], int] = protocol.advance
    all_still: Callable[[Words, Collection[int]], bool] = protocol.all_still
    outcome: Callable[[Words, View, Collection[int]], View] = protocol.outcome
    publish: Callable[[Words, View, int], None] = protocol.publish
    current_view: Callable[[Words, int], View | None] = protocol.current_view
    update: Callable[[State, int, int, Bounds], list[Write]] = keep_then_change
    restore: Callable[[State, View], list[Write]] = restore
    makers: Callable[[View, int], tuple[int, ...]] = lambda view, position: (
        view.dealers if view.position == position else view.members
    )
    makers_of: Callable[[Words, int, int], tuple[int, ...] | None] = protocol.makers_of
    judge: Callable[[Words, View], View | None] = lambda words, view: None
    """What a rank believes was reached when it stands still; None: it waits to be told."""
    told_after: Callable[[int], int] = lambda number: number
    """The number that a replacement is told when view `number` is the newest."""
    over: Callable[[tuple[Rank, ...]], bool] = lambda ranks: False
    """Whether the supervisor sees no need for a new view any more, though ranks still work."""


@final
@dataclass(frozen=True)
class Size:
    """What is explored."""

    ranks: int = 3
    rounds: int = 2
    deaths: int = 1
    joins: int = 0
    """Replacements that may be forked."""
    early: bool = False
    """Whether that may be while the dead one is still a member."""
    waiting: int = 0
    """The first so many ranks were lost before the start; their replacements have just been forked."""
    cells: int = 3
    norms: bool = False
    halt: bool = False
    """Whether the supervisor may ask to halt, at any time."""
    spare: bool = False
    """Whether the supervisor may ask for a copy, once."""
    courier: bool = False
    """Whether there are other machines, so that a round needs what somebody who is no member brings from them."""
    patient: bool = False
    """Whether transitions that nobody else can see are explored in every order, too."""
