"""Away: what a rank knows of the other machines: whose rank it is among all, and how it waits for what comes from them.

The one idea: strategies work on the arena of one machine; this is the one thing beside it that they ask. `HERE` is the
answer where there is one machine only.

    away = Away(seating, hosts, courier)          # courier: on the rank that exchanges beside its work, else None
"""

from dataclasses import dataclass
from typing import final

from unisono.arena.round import Round
from unisono.errors import Diverged, NodeLost
from unisono.strategies.nodes.courier import Courier
from unisono.strategies.nodes.desk import Desk
from unisono.strategies.nodes.seating import Seating


@final
@dataclass(frozen=True)
class Away:
    """As one rank sees it."""

    seating: Seating | None = None
    hosts: tuple[str, ...] = ()
    """Where each rank of all machines runs."""
    courier: Courier | None = None

    @property
    def size(self) -> int:
        """Ranks of all machines; 0: there is one machine, which knows."""
        return 0 if self.seating is None else self.seating.size

    def rank_of(self, slot: int) -> int:
        """The number of a rank of this machine among all."""
        return slot if self.seating is None else self.seating.ranks[slot]

    def close(self) -> None:
        """The others are not needed any more."""
        if self.courier is not None:
            self.courier.close()

    def fetch(self, round: Round, desk: Desk, position: int) -> None:
        """Returns when what round `position` needs is on the desk. `NodeLost`, or `Diverged`, if it will never be."""
        if self.courier is not None:
            self.courier.serve(position, round.makers(position))
            return
        courier = 0  # of the ranks of a machine, the first one talks to the others
        round.wait(lambda: desk.answered(position) or desk.failed, "an exchange with other machines", [courier])
        if desk.diverged:
            raise Diverged("the machines have different parameters; nothing was saved")
        if not desk.answered(position):
            raise NodeLost("another machine was lost", first_hand=False)


HERE = Away()
