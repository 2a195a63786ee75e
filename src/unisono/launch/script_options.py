"""ScriptOptions: how `unisono launch` starts a script, and what is no script.

    ScriptOptions(ranks=4).placements(port=free_port())         # who each rank of this machine is

Limits: imports nothing heavy.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import final

from unisono.environment.process_rank import Placement
from unisono.errors import UserError
from unisono.resources import usable_cores

DEFAULT_PORT = 29500
_RANKS_ELSEWHERE = ("-n", "-np", "--np", "--nproc-per-node", "--nproc_per_node", "--num_processes", "--num-processes")
"""What other launchers call --ranks."""


@final
@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """How a script is started."""

    ranks: int = 0
    """Processes on this machine; if not given, one for each core."""

    virtual_ranks: int = 0
    """Processes on all machines together, on however many cores, instead of --ranks: the same number gives the same
    bits on any layout of machines."""

    replace_gloo: bool = False
    """Use shared memory also where the script, or its framework, says "gloo"."""

    threads: int = 0
    """Threads of each rank; if not given, what OMP_NUM_THREADS says, else as many as the rank has cores for itself, and
    1 with --virtual-ranks."""

    num_nodes: int = 1
    """Machines, on each of which this command is started."""

    node_id: int = 0
    """Which of them this one is, from 0."""

    main_address: str = ""
    """Name or address of the first machine, as the others reach it."""

    main_port: int = DEFAULT_PORT
    """A port of the first machine that is free."""

    def __post_init__(self) -> None:
        for name in ("ranks", "virtual_ranks", "threads"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} is {getattr(self, name)}", hint="give 1 or more")
        if self.ranks and self.virtual_ranks:
            raise UserError("both --ranks and --virtual-ranks", hint="--virtual-ranks counts those of all machines")
        if self.num_nodes < 1:
            raise UserError(f"--num-nodes is {self.num_nodes}", hint="give 1 or more")
        if not 0 <= self.node_id < self.num_nodes:
            raise UserError(
                f"--node-id {self.node_id} of --num-nodes {self.num_nodes}",
                hint="machines are counted from 0; give --num-nodes on every machine",
            )
        if (self.num_nodes > 1) != bool(self.main_address):
            raise UserError(
                f"--num-nodes {self.num_nodes} {'without' if self.num_nodes > 1 else 'with'} --main-address",
                hint="several machines need --num-nodes, --node-id and --main-address, one machine none of them",
            )
        if not 1024 <= self.main_port <= 65535:
            raise UserError(f"--main-port is {self.main_port}", hint="give 1024 to 65535")
        if self.virtual_ranks and self.virtual_ranks < self.num_nodes:
            raise UserError(
                f"--virtual-ranks {self.virtual_ranks} on {self.num_nodes} machines", hint="give each machine one"
            )

    @property
    def starts_ranks(self) -> bool:
        """Whether the options say how many ranks to start, or where."""
        return bool(self.ranks or self.virtual_ranks or self.num_nodes > 1)

    def on_machine(self, placement: Placement) -> "ScriptOptions":
        """What is said by hand elsewhere, where mpirun or srun has started this command once on each machine."""
        if placement.local_size != 1:
            raise UserError(
                f"{placement.source} has started {placement.size} ranks, {placement.local_size or 'several'} of them "
                "on this machine, and each is to start more (--ranks, --virtual-ranks or --num-nodes)",
                hint="leave these options out; or have it start this command once on each machine "
                "(srun --ntasks-per-node=1, mpirun --map-by ppr:1:node); or unset its variables, if they are left over",
            )
        if self.num_nodes > 1:
            return self
        host, _, port = (placement.address or "").rpartition(":")
        chosen = int(port) if self.main_port == DEFAULT_PORT else self.main_port
        return replace(
            self, num_nodes=placement.size, node_id=placement.rank, main_address=host.strip("[]"), main_port=chosen
        )

    def placements(self, port: int) -> list[Placement]:
        """The ranks of this machine."""
        if self.virtual_ranks:
            total = self.virtual_ranks
            first, last = (total * number // self.num_nodes for number in (self.node_id, self.node_id + 1))
        else:
            near = self.ranks or usable_cores()
            total, first = near * self.num_nodes, near * self.node_id
            last = first + near
        address = f"{self.main_address or '127.0.0.1'}:{port}"
        return [
            Placement(rank, total, rank - first, last - first, self.node_id, self.num_nodes, address, "torchrun")
            for rank in range(first, last)
        ]

    def threads_of(self, ranks: int) -> int:
        """Threads of each rank; where ranks are virtual one, for their number must not decide the bits."""
        return self.threads or (1 if self.virtual_ranks else max(1, usable_cores() // ranks))


def check_script(command: Sequence[str]) -> None:
    """Refuses what is no script."""
    if not command:
        raise UserError("no script was given", hint="unisono launch --ranks 2 train.py --epochs 3")
    if command[0] == "-m":
        if len(command) == 1:
            raise UserError("-m without a module", hint="unisono launch --ranks 2 -m package.module --epochs 3")
        return
    script = Path(command[0])
    if command[0].startswith("-"):
        names = [f"--{entry.name.replace('_', '-')}" for entry in fields(ScriptOptions)]
        option = command[0].partition("=")[0]
        near = get_close_matches(option, names, 1)
        raise UserError(
            f"{command[0]} is no option of unisono launch",
            hint="did you mean --ranks?"
            if option in _RANKS_ELSEWHERE
            else f"did you mean {near[0]}?"
            if near
            else "unisono launch --help lists them; the script's come after it",
        )
    if not script.is_file():
        raise UserError(
            f"{script} is a directory" if script.is_dir() else f"there is no file {script}",
            hint="leave it out: the script follows unisono launch"
            if re.fullmatch(r"python[\d.]*", script.name)
            else "give a Python script, or -m and a module",
        )


def free_port() -> int:
    """A port of this machine that nobody has at this moment."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
