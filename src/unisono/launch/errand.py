"""Errand: the life of a courier that is a process of its own, between its supervisor and other machines' couriers.

The one idea: it does what it is told over a socket, a message at a time: join the others, agree with them, attach to an
arena that comes with the message; from then on it serves the rounds of that arena by itself until it is told to end. So
the supervisor starts no thread and waits for nobody, and a rank that dies breaks no connection.

    run_errand(socket, options, facts)        # in a forked process; see `outpost.py` for the other end

Orders and answers are those of `messages/exchange.py`.
"""

import socket
import time
import zlib
from contextlib import closing
from typing import Any, final

from unisono.arena import protocol
from unisono.arena.arena import Arena
from unisono.arena.layout import Sections
from unisono.arena.waiting import wait_until
from unisono.comm.base import Communicator
from unisono.comm.checked import CheckedCommunicator
from unisono.comm.route import is_loopback, is_own, resolve
from unisono.comm.telling import all_told
from unisono.errors import NodeLost, UnisonoError, UserError
from unisono.launch.children import readable
from unisono.launch.nodes import NodeOptions
from unisono.launch.secret import find_secret
from unisono.messages.exchange import (
    Answer,
    Attach,
    Attached,
    End,
    Failed,
    Joined,
    Leave,
    NodesLost,
    Order,
    Share,
)
from unisono.messages.exchange import Shared as SharedValues
from unisono.messages.packing import pack, unpack
from unisono.strategies.dealing import Slots
from unisono.strategies.farewell import Farewell
from unisono.strategies.nodes.courier import Courier
from unisono.strategies.nodes.names import NodeName
from unisono.strategies.nodes.seating import Seating
from unisono.strategies.shared import Shared, SharedPlan
from unisono.strategies.wire import wire_type

MESSAGE_BYTES = 1 << 20
_LOOK_S = 0.05
_PATIENCE_S = 300.0
"""Of a wait for another machine that lives; one that does not is noticed by its connection (`comm/keepalive.py`)."""


def run_errand(line: socket.socket, options: NodeOptions, facts: dict[str, Any]) -> int:
    """The exit code; whatever goes wrong is told over the `line` first."""
    try:
        with _meet(options) as comm:
            everybody = all_told(comm, facts | {"address": comm.address})
            _say(line, Joined(everybody))
            _obey(line, comm, everybody)
    except NodeLost as error:
        _say(line, NodesLost.of(error))
    except UnisonoError as error:
        _say(line, Failed.of(error))
    except (BrokenPipeError, ConnectionResetError):
        return 1  # the supervisor has ended, and so shall we
    return 0


def _meet(options: NodeOptions) -> Communicator:
    from unisono.comm import torch_dist
    from unisono.comm.roll_call import Join

    where = meeting_point(options)
    secret = find_secret(options.secret_file)
    join = Join(torch_dist.host_of(where), options.interface, options.join_timeout, "node", once=True, secret=secret)
    return torch_dist.world(options.node_id, options.num_nodes, where, "cpu", _PATIENCE_S, join)


def meeting_point(options: NodeOptions) -> str:
    """'address:port' of the first machine, as this one knows it; a `UserError` if that cannot be it."""
    address, port = resolve(options.main_address), options.main_port
    if options.node_id == 0:
        _check_main(options, address)
        if is_loopback(address) and options.main_address not in ("localhost", address):
            return f"{options.main_address}:{port}"  # its own name means nothing to others' machines as an address
    elif is_loopback(address) and options.main_address not in ("localhost", address):
        raise UserError(
            f"--main-address {options.main_address} is {address} on {socket.gethostname()}: this machine itself",
            hint="give the first machine's IP address, or mend /etc/hosts here",
        )
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _check_main(options: NodeOptions, address: str) -> None:
    """This is the first node: the main address must be its own, and the port free."""
    if not is_own(address):
        raise UserError(
            f"--main-address {options.main_address} ({address}) is not an address of {socket.gethostname()}, which "
            "has --node-id 0",
            hint="give the address of the machine that has --node-id 0; `ip address` shows it",
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, options.main_port))
        except OSError as error:
            raise UserError(
                f"--main-port {options.main_port} of {socket.gethostname()} is taken: {error.strerror}",
                hint="give another --main-port, the same on every machine; does another run use it?",
            ) from None


def _obey(line: socket.socket, comm: Communicator, everybody: list[dict[str, Any]]) -> None:
    courier: Courier | None = None
    while True:
        message, fds, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 1)
        order: Order = unpacked(message) if message else End()  # the other end has closed the line
        match order:
            case Share(mine):
                _say(line, SharedValues(all_told(comm, mine)))
            case Attach(plan):
                courier = _serve(line, comm, everybody, plan, fds[0])
            case Leave(text, code, crashes) if courier is not None:
                return courier.take_leave(Farewell(text, code, crashes))
            case _:
                if courier is not None:
                    comm.barrier()  # whoever leaves first would look lost to the others
                return None


def _serve(
    line: socket.socket, comm: Communicator, everybody: list[dict[str, Any]], plan: dict[str, Any], fd: int
) -> Courier:
    """All rounds, until there is another message."""
    seating = Seating(tuple(map(tuple, plan["groups"])), plan["node"], plan["shards"], plan["rounded"])
    places = SharedPlan(Sections.unpack(plan["sections"]), len(seating.ranks), (seating, plan["used"]))
    with closing(Arena.attach(fd, places)) as arena:
        shared = arena.state
    if plan["position"]:
        for array in shared.lasting_at(plan["position"]).arrays:
            comm.broadcast(array)
    if isinstance(comm, CheckedCommunicator):
        comm.checked = False  # gloo's own time-out stays; to compare calls would take as long as to make them
    names = [
        NodeName(node, facts["host"], facts["address"], seating.groups[node]) for node, facts in enumerate(everybody)
    ]
    _say(line, Attached())
    courier = Courier(shared, comm, names, wire_type(plan["wire"]))
    Rounds(shared, courier, plan["position"]).serve(line)
    return courier


@final
class Rounds:
    """The rounds of an arena, in their order, whoever its members are."""

    def __init__(self, shared: Shared, courier: Courier, position: int) -> None:
        assert shared.desk is not None
        self._shared, self._desk, self._courier, self._served = shared, shared.desk, courier, position
        self._look_at = 0.0

    def serve(self, line: socket.socket) -> None:
        """Until something is said on the `line`."""
        while True:
            makers: Slots | None = None
            called = False

            def ready() -> bool:
                nonlocal makers, called
                makers, called = self.makers(), self._called(line)
                return makers is not None or called

            if not wait_until(ready, 1.0):
                continue
            if makers is None:
                return
            self._served = self._desk.ordered_at
            self._courier.serve(self._served, makers)

    def makers(self) -> Slots | None:
        """Who left the gradients of the next round, once all of them are there."""
        shared, position = self._shared, self._desk.ordered_at
        if position <= self._served:
            return None
        return protocol.makers_of(shared.words, shared.size, position)

    def _called(self, line: socket.socket) -> bool:
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _LOOK_S
        return readable(line.fileno(), 0.0)


def _say(line: socket.socket, message: Answer) -> None:
    line.send(packed(message))


def packed(message: Order | Answer) -> bytes:
    """For the line, which takes about 200 kB at a time. Machines have nearly the same to say, so it gets short."""
    return zlib.compress(pack(message))


def unpacked(data: bytes) -> Any:
    """What was `packed`."""
    return unpack(zlib.decompress(data))
