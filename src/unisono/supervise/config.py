"""What a supervisor is asked for, and what it answers: the terms between it and whoever starts one. Plain data.

The one idea: a supervisor knows nothing of training. What ranks do, what is restored, what a round is called and who is
told of a death comes in from above; what came of it goes back the same way.

    Supervisor(words, size, body, SupervisorConfig(most_deaths=3), on_report).run().results
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

from unisono.arena.membership.protocol import View
from unisono.messages.events import Event

Body: TypeAlias = Callable[[int, int, Callable[[Any], None]], Any]
"""body(slot, after, report): a rank's life; it waits for a view later than number `after` that it is a member of."""


@final
@dataclass(frozen=True)
class SupervisorConfig:
    """How ranks are looked after."""

    respawn: bool = True
    most_deaths: int = 100
    most_crashes: int = 0
    """How many ranks one round may end before it is given up; 0: any number, and they are not counted."""
    name: Callable[[int], str] = "round {}".format
    """What a round is called."""
    rank_of: Callable[[int], int] = lambda slot: slot
    """The number by which users know the rank in a slot: on several machines, among the ranks of all."""
    stall_s: float = 0.0
    """0: 60 seconds, or 20 times a usual round if that is longer."""
    pieces: float = 1.0
    """How many pieces of work a rank does in a round: pushes, where a round is an epoch."""
    stacks: Path | None = None
    """Where the stack of a rank that is stuck is written."""
    restore: Callable[[View], Any] = lambda view: None
    """Takes back what was begun of a round that is to be done again."""
    on_event: Callable[[Event], None] = lambda event: None
    """Told of deaths, take-overs and joins."""
    tick: Callable[[], None] = lambda: None
    """Called about ten times a second."""
    signals: dict[int, float] = field(default_factory=dict)
    """When the first signal of each kind that asks for an end came; for blocks around the run that count with it."""


@final
@dataclass
class SupervisorResult:
    """How the run ended."""

    results: dict[int, Any] = field(default_factory=dict)
    """What ranks returned."""
    lost: str = ""
    """Why the run could not go on; empty if it could."""
    lost_nodes: tuple[int, ...] = ()
    """The machines without which it could not, if it is certain which."""
    view: View | None = None
    """What had been reached when the last rank ended; if the run could not go on, nothing is begun beyond it."""
    crashes: int = 0
    """If it could not: how many ranks ended by themselves, one after the other, in the round that was to be done."""
    takeovers: int = 0
    """Changes of membership after deaths, after which somebody went on."""
    restarts: int = 0
    takeover_s: list[float] = field(default_factory=list)
    """How long each change of membership after a death took, from the news of it."""
