"""A small HTTP server in one thread: bounded in time, in connections, in memory and in descriptors.

    with HttpServer("127.0.0.1", 0, lambda request: Response(HTTPStatus.OK, "text")) as server: server.step(0.25)

The one idea: everything that waits for a client waits in one `select`, with a deadline for the whole of what is awaited
(a request from its first to its last byte, a response likewise), so a client that sends or reads a byte a second is cut
off like one that does nothing. There is never a thread for a client. Clients that have not proved anything give way:
when all places are taken, the oldest of them makes room for a new one, so a client that sends its request at once
is served however many others hang on. (`ThreadingHTTPServer` has a deadline for each read only, a thread for each
connection, and no bound on either.)

Limits: while a response is made no other client is served. Places are counted for all clients together: on loopback all
of them have one address.
"""

import resource
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from time import monotonic
from types import TracebackType
from typing import Self, final

from unisono.report.live.http_message import (
    MOST_HEAD_BYTES,
    BadRequest,
    HttpRequest,
    Response,
    encode,
    find_end,
    parse_head,
    stays_open,
)

MOST_CONNECTIONS = 128
REQUEST_S = 10.0
"""For the whole head of a request, and for the pause before the next one on the same connection."""
RESPONSE_S = 60.0
"""For a whole response to be taken."""
DRAIN_S = 1.0
"""For a client to take the last response and to close; what it still sends is read and thrown away."""
PAUSE_S = 0.5
"""Without accepting, after descriptors or memory ran out."""
BACKLOG = 1024
"""Connections that the kernel keeps while a response is made; they take no descriptor of ours."""
_FEWEST = 4
_ACCEPTED_AT_ONCE = 64
_PIECE_BYTES = 1 << 18
_MOST_DRAINED_BYTES = 1 << 20


class _Phase(Enum):
    READ = auto()
    SEND = auto()
    DRAIN = auto()


@final
class _Connection:
    """A client: what has come of its request, or what is left of its response."""

    def __init__(self, client: socket.socket) -> None:
        self.socket = client
        self.phase = _Phase.READ
        self.since = monotonic()
        """When this phase began."""
        self.deadline = self.since + REQUEST_S
        self.received = bytearray()
        self.unsent = memoryview(b"")
        self.response: Response | None = None
        self.reused = False
        """Whether the connection stays open after this response."""
        self.trusted = False
        self.drained_bytes = 0

    def begin(self, phase: _Phase, within_s: float) -> None:
        self.phase, self.since = phase, monotonic()
        self.deadline = self.since + within_s


class HttpServer:
    """Asks `respond` for the response to each request that is one; other requests are refused here."""

    def __init__(self, host: str, port: int, respond: Callable[[HttpRequest], Response]) -> None:
        self._respond = respond
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((host, port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._places = _places()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._accepts_from: float | None = None
        """When accepting goes on, while it pauses."""
        self._connections: dict[_Connection, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in list(self._connections):
            self._close(connection)
        self._selector.close()
        self._listener.close()

    @property
    def connections(self) -> int:
        """How many clients there are."""
        return len(self._connections)

    @property
    def is_sending(self) -> bool:
        """Whether a response to a trusted client is on its way."""
        return any(each.trusted and each.phase is _Phase.SEND for each in self._connections)

    def step(self, timeout_s: float) -> None:
        """Serves those who are ready, after at most `timeout_s`, and cuts off those who are late."""
        ready = self._selector.select(timeout_s)
        # Before anything is served, which may take long: what came meanwhile is looked at first, in the next step.
        now = monotonic()
        for key, _ in ready:
            if key.data is None:
                self._accept()
            elif key.data in self._connections:
                self._go_on(key.data)
        for connection in [each for each in self._connections if each.deadline < now]:
            self._cut_off(connection)
        if self._accepts_from is not None and now >= self._accepts_from:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._accepts_from = None

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return  # there is none, or it has gone already
            except OSError:  # no descriptors, no memory: trying again at once would take a core
                self._pause()
                return
            if len(self._connections) >= self._places and not self._make_room():
                client.close()
            else:
                self._admit(client)

    def _pause(self) -> None:
        """Accepts no client for a while, and has fewer places from now on: else it would serve one client a pause."""
        self._places = min(self._places, max(_FEWEST, len(self._connections) // 2))
        self._make_room()
        while len(self._connections) > self._places and self._make_room():
            pass
        self._selector.unregister(self._listener)
        self._accepts_from = monotonic() + PAUSE_S

    def _admit(self, client: socket.socket) -> None:
        connection = _Connection(client)
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(client, selectors.EVENT_READ, connection)
        except OSError:
            client.close()
            return
        self._connections[connection] = None
        self._go_on(connection)  # a browser has sent its request by now

    def _make_room(self) -> bool:
        """Closes the connection that has waited longest, if possible of those that are not trusted. A response that is
        on its way to a trusted client is not cut: False if there are only such."""
        others = (each for each in self._connections if not (each.trusted and each.phase is _Phase.SEND))
        oldest = min(others, key=lambda each: (each.trusted, each.since), default=None)
        if oldest is None:
            return False
        if oldest.phase is _Phase.READ:
            with suppress(OSError):
                oldest.socket.send(encode(Response(HTTPStatus.SERVICE_UNAVAILABLE, "503: too many connections\n")))
        self._close(oldest)
        return True

    def _go_on(self, connection: _Connection) -> None:
        try:
            {_Phase.READ: self._read, _Phase.SEND: self._send, _Phase.DRAIN: self._drain}[connection.phase](connection)
            while connection.phase is _Phase.READ and self._serve(connection):
                pass  # several requests may have come at once
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:  # the client has gone
            self._close(connection)

    def _read(self, connection: _Connection) -> None:
        data = connection.socket.recv(MOST_HEAD_BYTES - len(connection.received))
        if not data:
            self._close(connection)
        connection.received += data

    def _serve(self, connection: _Connection) -> bool:
        """Responds to a request that has come; False if there is no complete one."""
        while connection.received.startswith((b"\r", b"\n")):
            del connection.received[:1]
        request: HttpRequest | None = None
        try:
            end = find_end(connection.received)
            if not end:
                return False
            head = bytes(connection.received[:end])
            del connection.received[:end]
            request = parse_head(head)
            response = self._respond(request)
        except BadRequest as error:
            response = Response(error.status, f"{error.status.value}: {error}\n")
        self._start(connection, response, request)
        return True

    def _start(self, connection: _Connection, response: Response, request: HttpRequest | None) -> None:
        connection.unsent = memoryview(encode(response, request))
        connection.response, connection.trusted = response, response.trusted
        connection.reused = stays_open(response, request)
        connection.begin(_Phase.SEND, RESPONSE_S)
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        while connection.unsent:
            sent = connection.socket.send(connection.unsent[:_PIECE_BYTES])
            connection.unsent = connection.unsent[sent:]
        response, connection.response = connection.response, None
        if response is not None and response.on_sent is not None:
            response.on_sent()
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        if connection.reused:
            connection.begin(_Phase.READ, REQUEST_S)
        else:
            # Closing while something is unread would take the response away from the client (RST).
            connection.socket.shutdown(socket.SHUT_WR)
            connection.begin(_Phase.DRAIN, DRAIN_S)

    def _drain(self, connection: _Connection) -> None:
        data = connection.socket.recv(_PIECE_BYTES)
        connection.drained_bytes += len(data)
        if not data or connection.drained_bytes > _MOST_DRAINED_BYTES:
            self._close(connection)

    def _cut_off(self, connection: _Connection) -> None:
        if connection.phase is _Phase.READ and connection.received:
            late = Response(HTTPStatus.REQUEST_TIMEOUT, f"408: no whole request within {REQUEST_S:g} s\n")
            with suppress(OSError):
                self._start(connection, late, None)
                return
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        if self._connections.pop(connection, self) is None:
            self._selector.unregister(connection.socket)
            connection.socket.close()


def _places() -> int:
    """How many connections there may be: three quarters of the descriptors are for what responses are made of."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, limit // 4))
