"""Outpost: a supervisor's hold on its courier, the process of this machine that talks to the other machines.

The one idea: a supervisor asks and hears short answers over a socket; everything that could block or needs threads is
in the courier (`errand.py`). If the courier ends, or tells that another machine was lost, the ranks are told through
the arena, and the supervisor ends the run in order; if it tells of an error, nothing is saved.

    with closing(Outpost(options, facts)) as post:
        everybody = post.join(); values = post.share(find); post.attach(plan, fd, desk)
        post.tick()                          # now and then; post.lost says why the run cannot go on
        post.take_leave(farewell)            # this machine fails: all are to leave with its reason

Limits: forked, so before torch has started threads in this process.
"""

import os
import signal
import socket
from collections.abc import Callable
from typing import Any, TypeVar, final

from unisono.errors import UnisonoError
from unisono.launch import children
from unisono.launch.errand import MESSAGE_BYTES, packed, run_errand, unpacked
from unisono.launch.nodes import NodeOptions
from unisono.launch.signals import SIGNALS
from unisono.messages.exchange import (
    Answer,
    Attach,
    Attached,
    End,
    Failed,
    Found,
    Joined,
    Leave,
    NodesLost,
    Order,
    Share,
    Shared,
)
from unisono.strategies.farewell import Farewell
from unisono.strategies.nodes.desk import Desk

_SETTING_UP_S = 60.0
"""For what comes before and after the time to join: loading torch, copying a snapshot to all machines."""
_JOINING = 3
"""The time to join holds for each of: reaching the first machine, all having come, all being connected."""
_LEAVING_S = 10.0
_ENDED = "the courier of this node, which talks to the others, was ended"

Wanted = TypeVar("Wanted")


@final
class Outpost:
    """Of one machine. `facts`: what the others are told of it."""

    def __init__(self, options: NodeOptions, facts: dict[str, Any]) -> None:
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
        self._desk: Desk | None = None
        self._left = False
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def live() -> int:
            self._line.close()
            for number in SIGNALS:  # the supervisor alone decides what they mean
                signal.signal(number, signal.SIG_IGN)
            return run_errand(theirs, options, facts)

        with children.signals_held():
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
        self._say(Share(Found(value) if failure is None else Failed.of(failure)))
        found = self._hear(Shared, 10 * _SETTING_UP_S).found
        if failure is not None:
            raise failure
        for node, one in enumerate(found):
            if isinstance(one, Failed):
                raise one.error(f"node {node}")
        return [one.value for one in found if isinstance(one, Found)]

    def attach(self, plan: dict[str, Any], fd: int, desk: Desk) -> None:
        """From now on the rounds of the arena behind `fd` are served."""
        self._desk = desk
        socket.send_fds(self._line, [packed(Attach(plan))], [fd])
        self._hear(Attached, 10 * _SETTING_UP_S)

    def tick(self) -> None:
        """Looks after the courier."""
        if self.lost or self.failure or self._desk is None:
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
            self._desk.fail()

    def why(self) -> str:
        """Why the ranks were told that the run cannot go on; empty if they were not. Raises a `failure`."""
        if self._desk is not None and self._desk.failed and not self.lost:
            # The courier tells them first: they hear it before it has found the words.
            children.readable(self._line.fileno(), _LEAVING_S)
            self.tick()
        if self.failure is not None:
            raise self.failure
        return self.lost

    @property
    def first_lost(self) -> bool:
        """Whether the first machine is, or may be, the one that was lost."""
        return 0 in self.lost_nodes

    def take_leave(self, farewell: Farewell) -> None:
        """The other machines are told why this one leaves, unless they know that the run cannot go on."""
        if self._desk is not None and not (self.lost or self.failure or self._left):
            self._say(Leave(farewell.text, farewell.code, farewell.crashes))
            self._left = True

    def close(self) -> None:
        """Lets the courier take its leave from the others, if there is a reason to; may be called twice."""
        if self._pidfd < 0:
            return
        try:
            if self._desk is not None and not (self.lost or self.failure):
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
            return  # it has ended; what it said before that is heard by whoever asks next

    def _hear(self, kind: type[Wanted], timeout_s: float) -> Wanted:
        if not children.readable(self._line.fileno(), timeout_s):
            raise UnisonoError(f"the courier of this node said nothing for {timeout_s:g} s")
        told = self._receive()
        if isinstance(told, kind):
            return told
        if isinstance(told, Failed):
            raise told.error()
        if isinstance(told, NodesLost):
            raise UnisonoError(told.message)
        raise UnisonoError(f"the courier of this node answered with {type(told).__name__} instead of {kind.__name__}")

    def _receive(self) -> Answer:
        data = self._line.recv(MESSAGE_BYTES)
        if not data:
            return NodesLost(_ENDED)
        answer: Answer = unpacked(data)
        return answer
