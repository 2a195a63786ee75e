"""MachineOptions: several machines, one command on each by hand, and how they find each other.

    unisono train --num-nodes 2 --node-id 0 --main-address 10.0.0.1 --ranks-per-node 4        # on the first machine
    unisono train --num-nodes 2 --node-id 1 --main-address 10.0.0.1 --ranks-per-node 4        # on the second

The one idea: these say where, never what: nothing here decides the result, and it is no part of a recipe.

Limits: imports nothing heavy.
"""

from dataclasses import dataclass
from typing import final

from unisono.errors import UserError

DEFAULT_PORT = 29500
MOST_JOIN_S = 86400.0
MOST_NODES = 10_000
_PORTS = range(1024, 65536)


@final
@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Where the ranks are."""

    num_nodes: int = 1
    """Machines, on each of which this command is started; by hand, not under mpirun, torchrun or srun."""

    node_id: int = 0
    """Which of them this one is, from 0; the first one writes the run directory."""

    main_address: str = ""
    """Name or address of the first machine, as the others reach it."""

    main_port: int = DEFAULT_PORT
    """A port of the first machine that is free; under srun, if it is left at this, one made of the job's number."""

    ranks_per_node: int = 0
    """Ranks on this machine; other machines may have more or fewer. If it is not given, --ranks says it."""

    interface: str = ""
    """The network interface between machines, such as eth0; the one on the way to the main address if empty."""

    secret_file: str = ""
    """A file of yours, mode 0600, with the same secret on every machine, which each proves to the first one; if empty,
    the variable UNISONO_SECRET, else ~/.config/unisono/secret, which is made if it is missing."""

    join_timeout: float = 60.0
    """Seconds within which all must have come; who is missing then is named, and the run ends with exit code 2."""

    def __post_init__(self) -> None:
        if self.num_nodes < 1:
            raise UserError(f"--num-nodes is {self.num_nodes}", hint="give 1 or more")
        if self.num_nodes > MOST_NODES:
            raise UserError(f"--num-nodes is {self.num_nodes}", hint=f"give {MOST_NODES:,} or fewer")
        if not 0 <= self.node_id < self.num_nodes:
            raise UserError(
                f"--node-id {self.node_id} of --num-nodes {self.num_nodes}",
                hint=f"nodes are counted from 0: give 0 to {self.num_nodes - 1}"
                if self.num_nodes > 1
                else "give --num-nodes, too",
            )
        if self.ranks_per_node < 0:
            raise UserError(f"--ranks-per-node is {self.ranks_per_node}", hint="give 1 or more")
        if self.main_port not in _PORTS:
            raise UserError(f"--main-port is {self.main_port}", hint=f"give {_PORTS[0]} to {_PORTS[-1]}")
        if not 0 < self.join_timeout <= MOST_JOIN_S:
            raise UserError(
                f"--join-timeout is {self.join_timeout:g}", hint=f"give seconds, more than 0, at most {MOST_JOIN_S:g}"
            )
        if self.num_nodes > 1 and not self.main_address:
            raise UserError(
                f"--num-nodes {self.num_nodes} without --main-address",
                hint="give the first machine's name or address, the same on every machine",
            )
        if self.num_nodes == 1 and self.main_address:
            raise UserError(
                f"--main-address {self.main_address} without --num-nodes", hint="give --num-nodes and --node-id, too"
            )

    @property
    def several(self) -> bool:
        """Whether this command is one of several."""
        return self.num_nodes > 1
