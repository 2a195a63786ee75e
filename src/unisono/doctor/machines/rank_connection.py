"""Connection: from how this process was started to a message board that all ranks share.

    with Watchdog("rank 0 of 2") as dog: board = call_together(options, placement, "auto", dog)

The one idea: the doctor is started like the training that it is to explain, by the same launcher, and talks over what
that training would use.
"""

from importlib.util import find_spec

from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.doctor.machines.rank_messenger import MessageBoard, RankMessenger, StoreBoard
from unisono.doctor.machines.watchdog import Watchdog
from unisono.environment.os_environ import detect
from unisono.environment.process_rank import Placement
from unisono.errors import UserError, unknown_name
from unisono.launch.connect import connect, require
from unisono.launch.exchanger_process import rendezvous_address
from unisono.launch.machine_options import MachineOptions
from unisono.launch.secret import find_secret
from unisono.launch.slurm.step_facts import SOURCES, step_facts

TRANSPORTS = ("auto", "mpi", "gloo")
_STARTING_S = 60.0
"""For torch or MPI to be loaded, from a disk that many nodes read at once, before anybody can be missed."""


def place(options: MachineOptions) -> Placement:
    """Which rank of how many this is. A `UserError` if it is alone."""
    found = detect()
    if options.several:
        if found.source != "alone":
            raise UserError(
                f"--num-nodes {options.num_nodes}, but {found.source} started this as one of {found.size}",
                hint=f"leave --num-nodes, --node-id and --main-address out: {found.source} says who is where",
            )
        address = f"{options.main_address}:{options.main_port}"
        return Placement(options.node_id, options.num_nodes, 0, 1, options.node_id, options.num_nodes, address, "hand")
    if found.size == 1:
        raise UserError(
            "--nodes looks at what is between ranks, and this process is alone",
            hint="start it as you start training: mpirun -n 4 unisono doctor --nodes; srun -n 4 --mpi=pmix unisono "
            "doctor --nodes; torchrun ... -m unisono doctor --nodes; or by hand on each machine with --num-nodes 2 "
            "--node-id K --main-address HOST",
        )
    return found


def transport_of(placement: Placement, asked: str) -> str:
    """mpi or gloo: as training would, where nothing was asked for."""
    if asked not in TRANSPORTS:
        raise unknown_name("transport", asked, TRANSPORTS)
    if asked == "auto":
        by_torch = placement.source in ("torchrun", "hand") or find_spec("mpi4py") is None
        asked = "gloo" if by_torch else "mpi"
    require(asked)
    return asked


def call_together(options: MachineOptions, placement: Placement, transport: str, dog: Watchdog) -> RankMessenger:
    """When all have come; those who have not are named within `options.join_timeout`."""
    dog.allow(options.join_timeout + _STARTING_S, f"when {transport} was starting")
    if transport == "mpi":
        return MessageBoard(connect(placement, "mpi", options.join_timeout))
    from unisono.comm.gloo.communicator import host_of
    from unisono.comm.gloo.store import open_store

    by_hand, address = placement.source == "hand", placement.address
    if by_hand:
        address = rendezvous_address(options)
    elif address is None and placement.source in SOURCES:
        step = step_facts()
        address = f"{step.main_host}:{step.main_port}"
    if address is None:
        raise UserError(
            f"--transport gloo needs the address of rank 0, and {placement.source} gives none",
            hint="set MASTER_ADDR and MASTER_PORT, or leave --transport out",
        )
    # torchrun's agent serves the store itself, and torch knows where.
    at = None if placement.source == "torchrun" else address
    near = placement.local_size == placement.size
    join = RendezvousOptions(
        main=host_of(address),
        at=address,
        interface=options.interface,
        timeout_s=options.join_timeout,
        noun="node" if by_hand else "rank",
        once=by_hand,
        secret=None if at is None else find_secret(options.secret_file, one_machine=near),
    )
    store, own = open_store(placement.rank, placement.size, at, join)
    return StoreBoard(store, placement.rank, placement.size, own)
