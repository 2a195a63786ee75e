"""RemoteView: what a rank knows of the other machines: whose rank it is among all, and how it waits for what comes
from them.

The one idea: strategies work on the arena of one machine; this is the one thing beside it that they ask.
`ONE_MACHINE` is the answer where there is one machine only.

    remote = RemoteView(machine_layout, hosts, exchanger)          # exchanger: on the rank that exchanges beside its
    work, else None
"""

from dataclasses import dataclass
from typing import final

from unisono.arena.round import Round
from unisono.errors import Diverged, NodeLost
from unisono.strategies.machines.exchanger import Exchanger
from unisono.strategies.machines.mailbox import MachineMailbox
from unisono.strategies.machines.topology import MachineLayout


@final
@dataclass(frozen=True)
class RemoteView:
    """As one rank sees it."""

    machine_layout: MachineLayout | None = None
    hosts: tuple[str, ...] = ()
    """Where each rank of all machines runs."""
    exchanger: Exchanger | None = None

    @property
    def size(self) -> int:
        """Ranks of all machines; 0: there is one machine, which knows."""
        return 0 if self.machine_layout is None else self.machine_layout.size

    def rank_of(self, slot: int) -> int:
        """The number of a rank of this machine among all."""
        return slot if self.machine_layout is None else self.machine_layout.ranks[slot]

    def close(self) -> None:
        """The others are not needed any more."""
        if self.exchanger is not None:
            self.exchanger.close()

    def fetch(self, round: Round, mailbox: MachineMailbox, position: int) -> None:
        """Returns when what round `position` needs is on the mailbox. `NodeLost`, or `Diverged`, if it will never
        be."""
        if self.exchanger is not None:
            self.exchanger.serve(position, round.contributors(position))
            return
        exchanger = 0  # of the ranks of a machine, the first one talks to the others
        round.wait(lambda: mailbox.answered(position) or mailbox.failed, "an exchange with other machines", [exchanger])
        if mailbox.diverged:
            raise Diverged("the machines have different parameters; nothing was saved")
        if not mailbox.answered(position):
            raise NodeLost("another machine was lost", first_hand=False)


ONE_MACHINE = RemoteView()
