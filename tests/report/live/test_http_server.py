"""Clients that take their time, go away, or come in crowds: bounded, and nobody else waits for them.

The test's own thread makes the server's steps, and the clock is set by hand: nothing here depends on how quick it is.
"""

import errno
import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus

import pytest

from unisono.report.live import http_server
from unisono.report.live.http_message import HttpRequest, Response
from unisono.report.live.http_server import DRAIN_S, MOST_CONNECTIONS, PAUSE_S, REQUEST_S, RESPONSE_S, HttpServer

GOOD = b"GET /good HTTP/1.1\r\nHost: localhost\r\n\r\n"
BAD = b"GET /bad HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE_BYTES = 64 << 20  # more than the kernel keeps for a reader


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(http_server, "monotonic", found)
    return found


def respond(request: HttpRequest) -> Response:
    trusted = request.path != "/bad"
    text = "x" * LARGE_BYTES if request.path == "/large" else f"{request.path} {request.query}\n"
    return Response(HTTPStatus.OK if trusted else HTTPStatus.FORBIDDEN, text, trusted=trusted)


@pytest.fixture
def server(clock) -> Iterator[HttpServer]:
    with HttpServer("127.0.0.1", 0, respond) as found:
        yield found


@pytest.fixture
def connected(server) -> Iterator[Callable[[], socket.socket]]:
    """Makes clients, which are closed in the end."""
    with ExitStack() as stack:

        def connect() -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60.0))
            until(server, lambda: any(each.socket.getpeername() == client.getsockname() for each in open_ones(server)))
            return client

        yield connect


def open_ones(server: HttpServer) -> list:
    return list(server._connections)


def until(server: HttpServer, true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            return
        server.step(0.01)
    raise AssertionError("it never came true")


def receive(server: HttpServer, client: socket.socket, count: int = 1) -> bytes:
    """As many responses, or all until the server closes."""
    client.setblocking(False)
    found = b""
    for _ in range(6000):
        try:
            data = client.recv(1 << 20)
        except BlockingIOError:
            server.step(0.01)
            continue
        found += data
        if not data or found.count(b"HTTP/1.1 ") >= count:
            return found
    raise AssertionError(f"no response: {found[:200]!r}")


def is_closed(server: HttpServer, client: socket.socket) -> bool:
    try:
        return receive(server, client, 1 << 30) == b""
    except ConnectionResetError:
        return True


def test_a_byte_now_and_then_does_not_put_the_deadline_off(server, connected, clock):
    client = connected()
    for at in range(13):
        client.sendall(GOOD[at : at + 1])
        until(server, lambda at=at: len(open_ones(server)[0].received) == at + 1)
        clock.now += REQUEST_S / 13
    assert open_ones(server)
    clock.now += 0.1
    assert receive(server, client, 2).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    client.close()
    until(server, lambda: not open_ones(server))


def test_a_client_that_neither_takes_the_last_response_nor_closes(server, connected, clock):
    client = connected()
    client.sendall(BAD)
    assert receive(server, client, 2).startswith(b"HTTP/1.1 403 ")
    assert open_ones(server)
    clock.now += DRAIN_S + 0.1
    until(server, lambda: not open_ones(server))


def test_a_connection_is_kept_for_a_while(server, connected, clock):
    client = connected()
    for _ in range(5):
        client.sendall(GOOD)
        assert receive(server, client).startswith(b"HTTP/1.1 200 OK\r\n")
        clock.now += REQUEST_S - 0.1
        server.step(0.0)
    clock.now += 0.2
    assert is_closed(server, client)


def test_one_who_does_not_take_a_response_is_cut_off(server, connected, clock):
    client = connected()
    client.sendall(LARGE)
    until(server, lambda: server.is_sending)
    clock.now += RESPONSE_S - 0.1
    server.step(0.0)
    assert server.is_sending
    clock.now += 0.2
    until(server, lambda: not open_ones(server))


def test_a_whole_response_is_sent_to_one_who_takes_it(server, connected):
    client = connected()
    client.sendall(LARGE)
    head, _, body = receive(server, client).partition(b"\r\n\r\n")
    assert f"Content-Length: {LARGE_BYTES}".encode() in head
    left = LARGE_BYTES - len(body)
    while left:
        server.step(0.0)
        with suppress(BlockingIOError):
            left -= len(client.recv(1 << 20))
    assert not server.is_sending


def test_what_came_while_a_response_was_made_is_not_late(server, connected, clock):
    slow, other = connected(), connected()

    def slowly(request: HttpRequest) -> Response:
        other.sendall(GOOD)
        clock.now += 10 * REQUEST_S
        return respond(request)

    server._respond, before = slowly, server._respond
    slow.sendall(GOOD)
    assert receive(server, slow).startswith(b"HTTP/1.1 200 ")
    server._respond = before
    assert receive(server, other).startswith(b"HTTP/1.1 200 ")


def test_295_that_hang_on_take_neither_places_nor_threads_and_one_with_a_request_is_served(server, connected):
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    slow = []
    for number in range(295):
        client = connected()
        client.sendall(GOOD[: number % 17])
        slow.append(client)
    assert len(open_ones(server)) == MOST_CONNECTIONS
    good = connected()
    good.sendall(GOOD)
    assert receive(server, good).startswith(b"HTTP/1.1 200 ")
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) - descriptors == 296 + MOST_CONNECTIONS  # the clients' are here, too
    assert receive(server, slow[0], 2).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    for _ in range(MOST_CONNECTIONS + 1):  # the good one has proved that it is
        connected()
    good.sendall(GOOD)
    assert receive(server, good).startswith(b"HTTP/1.1 200 ")


def test_a_response_on_its_way_is_not_cut_for_a_replacement(clock, monkeypatch):
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 1)
    with (
        HttpServer("127.0.0.1", 0, respond) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60.0) as reader,
    ):
        reader.sendall(LARGE)
        until(server, lambda: server.is_sending)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60.0) as other:
            assert is_closed(server, other)
        assert server.is_sending


def test_few_descriptors_are_few_places(clock, monkeypatch):
    for limit, places in ((2, 1), (41, 10), (1 << 20, MOST_CONNECTIONS), (resource.RLIM_INFINITY, MOST_CONNECTIONS)):
        monkeypatch.setattr(http_server.resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        with HttpServer("127.0.0.1", 0, respond) as server:
            assert server._places == places


def test_accepting_pauses_when_descriptors_run_out(server, connected, clock):
    class Exhausted:
        """A listener of which each look costs the same, and gives none."""

        def __init__(self, listener: socket.socket) -> None:
            self.listener, self.looks = listener, 0

        def fileno(self) -> int:
            return self.listener.fileno()

        def accept(self) -> None:
            self.looks += 1
            raise OSError(errno.EMFILE, "Too many open files")

    for _ in range(39):
        connected()
    real, exhausted = server._listener, Exhausted(server._listener)
    server._listener = exhausted
    with socket.create_connection(("127.0.0.1", server.port), timeout=60.0) as other:
        other.sendall(GOOD)
        until(server, lambda: exhausted.looks == 1)
        assert len(open_ones(server)) == 19  # half of them made room, for good
        for _ in range(50):
            server.step(0.0)
        assert exhausted.looks == 1
        server._listener = real
        clock.now += PAUSE_S
        assert receive(server, other).startswith(b"HTTP/1.1 200 ")
    for _ in range(23):
        connected()
    assert len(open_ones(server)) == 19


def test_several_requests_at_once_are_served_in_turn(server, connected):
    client = connected()
    asked = b"".join(b"GET /?%d HTTP/1.1\nHost:a\n\n" % number for number in range(500))
    client.sendall(asked + BAD + GOOD)
    answers = receive(server, client, 600)
    assert [int(part.split()[0]) for part in answers.split(b"\n/ ")[1:]] == list(range(500))
    assert answers.count(b"HTTP/1.1 ") == 501, "after a refusal nothing is served"


def test_the_refusal_of_a_body_reaches_a_client_that_goes_on_sending(server, connected):
    client = connected()
    client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + GOOD * 2000)
    assert receive(server, client, 2).count(b"HTTP/1.1 ") == 1
    client.settimeout(60.0)

    def send_on() -> None:
        for _ in range(1000):
            client.sendall(b"x" * 10000)
            server.step(0.0)

    with pytest.raises(OSError, match=r"reset|pipe"):  # it is not read for ever
        send_on()


@pytest.mark.parametrize("data", [b"", b"GET", GOOD[:-2], LARGE], ids=["nothing", "a word", "a half", "all"])
@pytest.mark.parametrize("linger", [struct.pack("ii", 1, 0), None], ids=["reset", "closed"])
def test_one_who_goes_away_leaves_nothing(server, connected, data, linger):
    client = connected()
    client.sendall(data)
    until(server, lambda: server.is_sending if data == LARGE else len(open_ones(server)[0].received) == len(data))
    if linger:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    client.close()
    until(server, lambda: not open_ones(server))


def test_leaving_closes_everything(clock):
    with HttpServer("127.0.0.1", 0, respond) as server:
        client = socket.create_connection(("127.0.0.1", server.port), timeout=60.0)
        until(server, lambda: len(open_ones(server)) == 1)
    with client:
        assert client.recv(1) == b""
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) == errno.ECONNREFUSED
