"""StoreServer: a small store of keys and values that machines use to find each other, for those who know the secret.

The one idea: a connection that has not proved the secret (`authentication.py`) can do nothing but wait for its end. It
is closed after a few seconds, or sooner if many of its kind come, so strangers neither read nor change anything and
hold up nobody. All work is done by one thread, which never waits for anybody.

    server = StoreServer(["10.0.0.1"], 29500, secret, say=print)      # until it is closed, or collected

Requests and answers are frames: a length, a MAC, and fields with a length each; nothing in them is executed. What can
be asked is in `_Loop._answer`. Limits: all that is held is in memory, and bounded (`MOST_...`).
"""

import errno
import os
import selectors
import signal
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import final

from unisono.comm.topology.authentication import ANSWER_BYTES, MAC_BYTES, Channel, Hello, Refused, Secret, judge

MOST_KEY_BYTES, MOST_VALUE_BYTES = 1 << 10, 1 << 20
MOST_KEYS, MOST_BYTES = 1 << 17, 1 << 26
MOST_FRAME_BYTES = MOST_VALUE_BYTES + (1 << 16)
MOST_UNPROVEN, MOST_PROVEN = 64, 1 << 14
PROVE_S = 5.0
"""How long a connection may take to prove the secret."""
MOST_REFUSALS = 8
"""So many refused machines are told of; a stranger shall not fill the terminal."""

_LENGTH = struct.Struct(">I")
_PAUSE_S, _MOST_PATIENCE_S = 0.1, 3600.0


def pack(*fields: bytes) -> bytes:
    """Fields as one payload."""
    return b"".join(_LENGTH.pack(len(entry)) + entry for entry in fields)


def unpack(payload: bytes) -> list[bytes]:
    """The fields of a payload; a ValueError if it has none, or ends within one."""
    fields, start = [], 0
    while start < len(payload):
        if len(payload) < start + 4:
            raise ValueError("half a field")
        (length,) = _LENGTH.unpack_from(payload, start)
        if len(payload) < start + 4 + length:
            raise ValueError("half a field")
        fields.append(payload[start + 4 : start + 4 + length])
        start += 4 + length
    if not fields:
        raise ValueError("no field")
    return fields


def frame(channel: Channel, *fields: bytes) -> bytes:
    """Fields as they are sent."""
    sealed = channel.seal(pack(*fields))
    return _LENGTH.pack(len(sealed)) + sealed


def frame_length(head: bytes) -> int:
    """How much comes after the first four bytes of a frame; `Refused` if that cannot be."""
    (length,) = _LENGTH.unpack(head)
    if not MAC_BYTES < length <= MOST_FRAME_BYTES:
        raise Refused(f"a message of {length} bytes")
    return int(length)


@final
class StoreServer:
    """Listens on these addresses, and no others; without those that this machine cannot use just now, if one is left.
    say: hears who was refused, and why; called in the server's thread."""

    def __init__(self, addresses: Sequence[str], port: int, secret: Secret, say: Callable[[str], None]) -> None:
        listeners: dict[str, socket.socket] = {}
        unusable: OSError | None = None
        try:
            for address in addresses:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                try:
                    listener = socket.create_server((address, port), family=family, backlog=1024)
                except OSError as error:
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    unusable = error  # an interface that is going, or IPv6 that is not ready
                    continue
                listeners[address] = listener
                port = port or listener.getsockname()[1]
            if unusable and not listeners:
                raise unusable
        except OSError:
            for listener in listeners.values():
                listener.close()
            raise
        self.addresses, self.port = list(listeners), port
        self.refusals: list[str] = []
        """What was said, for whoever gives up waiting."""
        loop = _Loop(list(listeners.values()), secret, partial(_say, self.refusals, say))
        # The thread holds the loop, not this: when the last store that uses it goes, the server ends.
        self.close = weakref.finalize(self, loop.close)
        loop.thread.start()


def _say(refusals: list[str], say: Callable[[str], None], text: str) -> None:
    refusals.append(text)
    say(text)


@final
@dataclass
class _Wait:
    """A request that is answered when all its keys are there."""

    keys: list[bytes]
    deadline: float
    values: bool
    """Whether their values are the answer: those of the first ones, as many as fit into one."""


@final
@dataclass(eq=False)
class _Peer:
    """A connection. Without a channel it has proved nothing."""

    line: socket.socket
    place: str
    deadline: float
    hello: Hello = field(default_factory=Hello.fresh)
    channel: Channel | None = None
    wait: _Wait | None = None
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)

    def missing(self) -> int:
        """Bytes until the message that is coming is complete; 0: it is. `Refused` if it is too long."""
        if self.channel is None:
            return ANSWER_BYTES - len(self.inbox)
        if len(self.inbox) < 4:
            return 4 - len(self.inbox)
        return 4 + frame_length(bytes(self.inbox[:4])) - len(self.inbox)


@final
class _Loop:
    """The thread of a server, and what only that touches."""

    def __init__(self, listeners: list[socket.socket], secret: Secret, say: Callable[[str], None]) -> None:
        self._listeners, self._secret, self._say = listeners, secret, say
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._values: dict[bytes, bytes] = {}
        self._bytes = 0
        self._unproven: dict[_Peer, None] = {}
        """In the order in which they came."""
        self._proven: set[_Peer] = set()
        self._refused: set[tuple[str, bytes]] = set()
        self._closing, self._pid = False, os.getpid()
        self.thread = threading.Thread(target=self._run, name="unisono store", daemon=True)

    def close(self) -> None:
        """Ends the thread; all connections are closed when this returns."""
        if os.getpid() != self._pid:  # a fork, which has no such thread; to shut down would end its parent's listeners
            for listener in self._listeners:
                listener.close()
            return
        self._closing = True
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        if self.thread.is_alive() and threading.current_thread() is not self.thread:
            self.thread.join(PROVE_S)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        try:
            while not self._closing:
                for key, events in self._selector.select(self._patience_s()):
                    if key.data is None:
                        self._accept(key.fileobj)  # type: ignore[arg-type]  # a socket is what was registered
                    elif key.data in self._unproven or key.data in self._proven:
                        self._serve(key.data, events)
                self._expire()
        finally:
            for peer in [*self._unproven, *self._proven]:
                peer.line.close()
            for listener in self._listeners:
                listener.close()
            self._selector.close()

    def _patience_s(self) -> float:
        """At most an hour, for a selector takes no more than some days; less if no listener is left to wake it."""
        most_s = _MOST_PATIENCE_S if self._listeners else _PAUSE_S
        deadlines = [next(iter(self._unproven)).deadline] if self._unproven else []
        deadlines += [peer.wait.deadline for peer in self._proven if peer.wait is not None]
        return max(0.0, min([most_s, *(deadline - time.monotonic() for deadline in deadlines)]))

    def _expire(self) -> None:
        now = time.monotonic()
        for peer in [peer for peer in self._unproven if peer.deadline <= now]:
            self._drop(peer)
        for peer in [peer for peer in self._proven if peer.wait is not None and peer.wait.deadline <= now]:
            peer.wait = None
            self._send(peer, b"late")

    def _accept(self, listener: socket.socket) -> None:
        try:
            line, found = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                if self._unproven:
                    self._drop(next(iter(self._unproven)))
                else:
                    time.sleep(_PAUSE_S)  # until somebody leaves; the caller waits in the meantime
            elif error.errno == errno.EINVAL:  # it was shut down; whoever is connected goes on
                self._selector.unregister(listener)
                self._listeners.remove(listener)
                listener.close()
            return
        if len(self._unproven) >= MOST_UNPROVEN:
            self._drop(next(iter(self._unproven)))
        peer = _Peer(line, str(found[0]), time.monotonic() + PROVE_S)
        try:
            line.setblocking(False)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._selector.register(line, selectors.EVENT_READ, peer)
        except OSError:  # it left already, or the kernel watches no more connections of this user
            line.close()
            return
        self._unproven[peer] = None
        peer.outbox += peer.hello.packed()
        self._flush(peer)

    def _drop(self, peer: _Peer) -> None:
        self._unproven.pop(peer, None)
        self._proven.discard(peer)
        with suppress(KeyError, ValueError):
            self._selector.unregister(peer.line)
        peer.line.close()

    def _serve(self, peer: _Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(peer)
                return
            data = peer.line.recv(min(peer.missing(), 1 << 16))
            if not data or peer.wait is not None:  # it left, or speaks before it was answered
                self._drop(peer)
                return
            peer.inbox += data
            if peer.missing():
                return
            message = bytes(peer.inbox)
            peer.inbox.clear()
            if peer.channel is None:
                self._admit(peer, message)
            else:
                self._handle(peer, unpack(peer.channel.unseal(message[4:])))
        except BlockingIOError:
            return
        except (OSError, Refused, ValueError, OverflowError):
            self._drop(peer)

    def _admit(self, peer: _Peer, answer: bytes) -> None:
        verdict = judge(self._secret, peer.hello, answer)
        full = len(self._proven) >= MOST_PROVEN
        if verdict.channel is None or full:
            with suppress(OSError):  # whoever was refused need not listen
                peer.line.send(verdict.reply)
            self._drop(peer)
            # By address and kind alone: names can be made up, and would use up what may be told of others.
            case = peer.place, verdict.reply[:1]
            if verdict.reason and case not in self._refused and len(self._refused) < MOST_REFUSALS:
                self._refused.add(case)
                self._say(f"refused {peer.place}: {verdict.reason}")
            return
        del self._unproven[peer]
        self._proven.add(peer)
        peer.channel = verdict.channel
        peer.outbox += verdict.reply
        self._flush(peer)

    def _send(self, peer: _Peer, *fields: bytes) -> None:
        assert peer.channel is not None
        peer.outbox += frame(peer.channel, *fields)
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        try:
            while peer.outbox:
                del peer.outbox[: peer.line.send(peer.outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        # Nothing is read from whoever does not take its answers.
        wanted = selectors.EVENT_WRITE if peer.outbox else selectors.EVENT_READ
        if self._selector.get_key(peer.line).events != wanted:
            self._selector.modify(peer.line, wanted, peer)

    def _handle(self, peer: _Peer, request: list[bytes]) -> None:
        kind, *fields = request
        if kind in (b"get", b"wait") and len(fields) > 1:
            peer.wait = _Wait(fields[1:], time.monotonic() + int(fields[0]) / 1000, kind == b"get")
            self._wake(peer)
            return
        try:
            reply = self._answer(kind, fields)
        except (ValueError, IndexError) as error:
            self._send(peer, b"bad", str(error).encode())
            return
        self._send(peer, b"ok", *reply)
        for other in [other for other in self._proven if other.wait is not None]:
            self._wake(other)

    def _wake(self, peer: _Peer) -> None:
        wait = peer.wait
        if wait is not None and all(key in self._values for key in wait.keys):
            peer.wait = None
            self._send(peer, b"ok", *(self._fitting(wait.keys) if wait.values else []))

    def _fitting(self, keys: list[bytes]) -> list[bytes]:
        found, room = [], MOST_VALUE_BYTES
        for key in keys:
            room -= len(self._values[key])
            if room < 0:
                break
            found.append(self._values[key])
        return found

    def _answer(self, kind: bytes, fields: list[bytes]) -> list[bytes]:
        """What a request that waits for nothing gives; a ValueError if it is refused."""
        values = self._values
        if kind == b"check":
            return [b"1" if all(key in values for key in fields) else b"0"]
        if kind == b"count":
            return [b"%d" % len(values)]
        key = fields[0]
        if kind == b"set":
            self._put(key, fields[1])
            return []
        if kind == b"append":
            self._put(key, values.get(key, b"") + fields[1])
            return []
        if kind == b"add":
            self._put(key, b"%d" % (int(values.get(key, b"0")) + int(fields[1])))
            return [values[key]]
        if kind == b"compare_set":  # as torch: a key that is missing is set if nothing was expected
            if values.get(key, b"") == fields[1]:
                self._put(key, fields[2])
            return [values.get(key, fields[1])]
        if kind == b"delete":
            found = values.pop(key, None)
            self._bytes -= 0 if found is None else len(key) + len(found)
            return [b"0" if found is None else b"1"]
        if kind == b"delete_under":
            found_keys = [entry for entry in values if entry.startswith(key)]
            for entry in found_keys:
                self._bytes -= len(entry) + len(values.pop(entry))
            return [b"%d" % len(found_keys)]
        raise ValueError(f"unknown request {kind!r}")

    def _put(self, key: bytes, value: bytes) -> None:
        if len(key) > MOST_KEY_BYTES or len(value) > MOST_VALUE_BYTES:
            raise ValueError(f"a key of {len(key)} bytes with a value of {len(value)}")
        before = self._values.get(key)
        grown = self._bytes + len(value) + (len(key) if before is None else -len(before))
        if grown > MOST_BYTES or (before is None and len(self._values) >= MOST_KEYS):
            raise ValueError("the store is full")
        self._bytes = grown
        self._values[key] = value
