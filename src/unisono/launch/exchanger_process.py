"""ExchangerProcess: the process of this machine that talks to the other machines, and the supervisor's handle on it.

The one idea: the supervisor sends short orders over a socket and gets short answers; everything that could block or
needs threads is in the exchanger: joining the other machines, agreeing with them, and, once it is attached to the
arena, serving its rounds until it is asked to end. So the supervisor starts no thread and waits for no machine, and a
rank that dies breaks no connection. Orders and answers are the types of `messages/exchanger_orders.py`.

    with closing(ExchangerProcess(options, facts)) as exchanger:     # the supervisor's side
        everybody = exchanger.join(); values = exchanger.share(find); exchanger.attach(plan, fd, mailbox)
        exchanger.tick()                          # now and then; exchanger.lost says why the run cannot go on
        exchanger.announce_failure(failure_notice)        # this machine fails: all leave with its reason
    run_exchanger(socket, options, facts)         # the other side, in the forked process

If the exchanger ends, or reports that another machine was lost, the ranks learn it through the arena, and the
supervisor ends the run in order. If it reports an error, nothing is saved.

Limits: forked, so before torch has started threads in this process.
"""

import os
import signal
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar, final

from unisono.arena.arena import Arena
from unisono.arena.membership import protocol
from unisono.arena.memory.segment import Sections
from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import gather_objects
from unisono.comm.checked_base import CheckedCommunicator
from unisono.comm.topology.addresses import is_loopback, is_own, resolve
from unisono.errors import NodeLost, UnisonoError, UserError
from unisono.launch.machine_options import MachineOptions
from unisono.launch.secret import find_secret
from unisono.messages.exchanger_orders import (
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
    Shared,
    Succeeded,
)
from unisono.messages.exchanger_orders import Shared as SharedValues
from unisono.messages.packing import pack, unpack
from unisono.strategies.arena.shard_sums import Slots
from unisono.strategies.arena.state import ArenaState, SharedPlan
from unisono.strategies.failure_notice import FailureNotice
from unisono.strategies.machines.machine_exchange import Exchanger
from unisono.strategies.machines.machine_layout import MachineLayout, MachineName
from unisono.strategies.machines.mailbox import MachineMailbox
from unisono.strategies.wire_type import wire_type
from unisono.supervise import children
from unisono.supervise.children import readable
from unisono.supervise.signals import SIGNALS

MESSAGE_BYTES = 1 << 20
_LOOK_S = 0.05
_PATIENCE_S = 300.0
"""Of a wait for another machine that lives; one that does not is noticed by its connection
(`comm/gloo/kernel_settings.py`)."""


def run_exchanger(line: socket.socket, options: MachineOptions, facts: dict[str, Any]) -> int:
    """The exit code; whatever goes wrong is told over the `line` first."""
    try:
        with _meet(options) as comm:
            everybody = gather_objects(comm, facts | {"address": comm.address})
            _say(line, Joined(everybody))
            _obey(line, comm, everybody)
    except NodeLost as error:
        _say(line, NodesLost.of(error))
    except UnisonoError as error:
        _say(line, Failed.of(error))
    except (BrokenPipeError, ConnectionResetError):
        return 1  # the supervisor has ended, and so shall we
    return 0


def _meet(options: MachineOptions) -> Communicator:
    from unisono.comm.gloo import communicator as torch_dist
    from unisono.comm.topology.rendezvous import RendezvousOptions

    where = rendezvous_address(options)
    secret = find_secret(options.secret_file)
    join = RendezvousOptions(
        torch_dist.host_of(where), options.interface, options.join_timeout, "node", once=True, secret=secret
    )
    return torch_dist.world(options.node_id, options.num_nodes, where, "cpu", _PATIENCE_S, join)


def rendezvous_address(options: MachineOptions) -> str:
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


def _check_main(options: MachineOptions, address: str) -> None:
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
    exchanger: Exchanger | None = None
    while True:
        message, fds, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 1)
        order: Order = unpacked(message) if message else End()  # the other end has closed the line
        match order:
            case Share(mine):
                _say(line, SharedValues(gather_objects(comm, mine)))
            case Attach(plan):
                exchanger = _serve(line, comm, everybody, plan, fds[0])
            case Leave(text, code, crashes) if exchanger is not None:
                return exchanger.announce_failure(FailureNotice(text, code, crashes))
            case _:
                if exchanger is not None:
                    comm.barrier()  # a machine that leaves first would look lost to the others
                return None


def _serve(
    line: socket.socket, comm: Communicator, everybody: list[dict[str, Any]], plan: dict[str, Any], fd: int
) -> Exchanger:
    """All rounds, until there is another message."""
    machine_layout = MachineLayout(tuple(map(tuple, plan["groups"])), plan["node"], plan["shards"], plan["rounded"])
    places = SharedPlan(Sections.unpack(plan["sections"]), len(machine_layout.ranks), (machine_layout, plan["used"]))
    with closing(Arena.attach(fd, places)) as arena:
        shared = arena.state
    if plan["position"]:
        for array in shared.lasting_at(plan["position"]).arrays:
            comm.broadcast(array)
    if isinstance(comm, CheckedCommunicator):
        comm.checked = False  # gloo's own time-out stays; to compare calls would take as long as to make them
    names = [
        MachineName(node, facts["host"], facts["address"], machine_layout.groups[node])
        for node, facts in enumerate(everybody)
    ]
    _say(line, Attached())
    exchanger = Exchanger(shared, comm, names, wire_type(plan["wire"]))
    ExchangeRounds(shared, exchanger, plan["position"]).serve(line)
    return exchanger


@final
class ExchangeRounds:
    """The rounds of an arena, in their order, whoever its members are."""

    def __init__(self, shared: ArenaState, exchanger: Exchanger, position: int) -> None:
        assert shared.mailbox is not None
        self._shared, self._mailbox, self._exchanger, self._served = shared, shared.mailbox, exchanger, position
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
            self._served = self._mailbox.ordered_at
            self._exchanger.serve(self._served, makers)

    def makers(self) -> Slots | None:
        """Who left the gradients of the next round, once all of them are there."""
        shared, position = self._shared, self._mailbox.ordered_at
        if position <= self._served:
            return None
        return protocol.contributors_of(shared.words, shared.size, position)

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


_SETTING_UP_S = 60.0
"""For what comes before and after the time to join: loading torch, copying a snapshot to all machines."""
_JOINING = 3
"""The time to join holds for each of: reaching the first machine, all having come, all being connected."""
_LEAVING_S = 10.0
_ENDED = "the exchanger of this node, which talks to the others, was ended"

Wanted = TypeVar("Wanted")


@final
class ExchangerProcess:
    """Of one machine. `facts`: what the others are told of it."""

    def __init__(self, options: MachineOptions, facts: dict[str, Any]) -> None:
        self._options = options
        self.lost = ""
        """Why the run cannot go on, in words; empty while it can."""
        self.lost_nodes: tuple[int, ...] = ()
        """The machines that are lost, or, if not `certain`, one of which is."""
        self.certain = True
        self.crashes = 0
        """Of a machine that gave up: see `Outcome.crashes`."""
        self.failure: UnisonoError | None = None
        """A mistake that is nobody's loss: then nothing is to be saved."""
        self._mailbox: MachineMailbox | None = None
        self._left = False
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def live() -> int:
            self._line.close()
            for number in SIGNALS:  # the supervisor alone decides what they mean
                signal.signal(number, signal.SIG_IGN)
            return run_exchanger(theirs, options, facts)

        with children.defer_signals():
            self._pid = children.fork_child(live)
            self._pidfd = os.pidfd_open(self._pid)
        theirs.close()

    def join(self) -> list[dict[str, Any]]:
        """The facts of all machines, when all have come. A `UserError` if they do not."""
        return self._hear(Joined, _JOINING * self._options.join_timeout + _SETTING_UP_S).facts

    def share(self, find: Callable[[], Any]) -> list[Any]:
        """What `find` gives on each machine. If it fails on one, all raise what that one has to say."""
        failure, value = None, None
        try:
            value = find()
        except UnisonoError as error:
            failure = error
        self._say(Share(Succeeded(value) if failure is None else Failed.of(failure)))
        found = self._hear(Shared, 10 * _SETTING_UP_S).found
        if failure is not None:
            raise failure
        for node, one in enumerate(found):
            if isinstance(one, Failed):
                raise one.error(f"node {node}")
        return [one.value for one in found if isinstance(one, Succeeded)]

    def attach(self, plan: dict[str, Any], fd: int, mailbox: MachineMailbox) -> None:
        """From now on the rounds of the arena behind `fd` are served."""
        self._mailbox = mailbox
        socket.send_fds(self._line, [packed(Attach(plan))], [fd])
        self._hear(Attached, 10 * _SETTING_UP_S)

    def tick(self) -> None:
        """Looks after the exchanger."""
        if self.lost or self.failure or self._mailbox is None:
            return
        if children.readable(self._line.fileno(), 0.0):
            told = self._receive()
            if isinstance(told, Failed):
                self.failure = told.error()
            elif isinstance(told, NodesLost):
                self.lost, self.crashes = told.message, told.crashes
                self.lost_nodes, self.certain = told.nodes, told.certain
        elif children.readable(self._pidfd, 0.0):
            self.lost = _ENDED
        if self.lost or self.failure:
            self._mailbox.fail()

    def why(self) -> str:
        """Why the ranks were told that the run cannot go on; empty if they were not. Raises a `failure`."""
        if self._mailbox is not None and self._mailbox.failed and not self.lost:
            # The exchanger tells them first: they hear it before it has found the words.
            children.readable(self._line.fileno(), _LEAVING_S)
            self.tick()
        if self.failure is not None:
            raise self.failure
        return self.lost

    @property
    def first_lost(self) -> bool:
        """Whether the first machine is, or may be, the one that was lost."""
        return 0 in self.lost_nodes

    def announce_failure(self, failure_notice: FailureNotice) -> None:
        """The other machines are told why this one leaves, unless they know that the run cannot go on."""
        if self._mailbox is not None and not (self.lost or self.failure or self._left):
            self._say(Leave(failure_notice.text, failure_notice.code, failure_notice.crashes))
            self._left = True

    def close(self) -> None:
        """Lets the exchanger take its leave from the others, if there is a reason to; may be called twice."""
        if self._pidfd < 0:
            return
        try:
            if self._mailbox is not None and not (self.lost or self.failure):
                if not self._left:
                    self._say(End())
                children.readable(self._pidfd, _LEAVING_S)
        finally:
            self._line.close()
            children.end({self._pid: self._pidfd})
            os.close(self._pidfd)
            self._pidfd = -1

    def _say(self, message: Order) -> None:
        try:
            self._line.send(packed(message))
        except (BrokenPipeError, ConnectionResetError):
            return  # it has ended; what it said before that is heard by the next call

    def _hear(self, kind: type[Wanted], timeout_s: float) -> Wanted:
        if not children.readable(self._line.fileno(), timeout_s):
            raise UnisonoError(f"the exchanger of this node said nothing for {timeout_s:g} s")
        told = self._receive()
        if isinstance(told, kind):
            return told
        if isinstance(told, Failed):
            raise told.error()
        if isinstance(told, NodesLost):
            raise UnisonoError(told.message)
        raise UnisonoError(f"the exchanger of this node answered with {type(told).__name__} instead of {kind.__name__}")

    def _receive(self) -> Answer:
        data = self._line.recv(MESSAGE_BYTES)
        if not data:
            return NodesLost(_ENDED)
        answer: Answer = unpacked(data)
        return answer
