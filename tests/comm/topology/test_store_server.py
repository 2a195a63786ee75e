"""The store of those who know the secret: what it does for them, and what strangers cannot do to it."""

import errno
import selectors
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from unisono.comm.topology import store_server
from unisono.comm.topology.authentication import (
    HELLO_BYTES,
    REPLY_BYTES,
    Channel,
    Claim,
    Hello,
    Refused,
    Secret,
    respond,
)
from unisono.comm.topology.store_client import StoreClient, StoreError, StoreTimeout, Unreachable
from unisono.comm.topology.store_server import (
    MOST_KEY_BYTES,
    MOST_REFUSALS,
    MOST_UNPROVEN,
    MOST_VALUE_BYTES,
    StoreServer,
    frame,
    pack,
    unpack,
)

OURS, OTHER = Secret(b"the secret of these tests", "the test"), Secret(b"the secret of somebody else", "elsewhere")
PATIENCE_S = 30.0


class Place:
    """A server, and what it said of whom it refused."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.refusal = threading.Event()
        self.server = StoreServer(["127.0.0.1"], 0, OURS, self.hear)

    def hear(self, text: str) -> None:
        self.said.append(text)
        self.refusal.set()

    def client(self, secret: Secret = OURS) -> StoreClient:
        return StoreClient.connect("127.0.0.1", self.server.port, secret, PATIENCE_S)

    def stranger(self, source: str = "127.0.0.1") -> socket.socket:
        where = "127.0.0.1", self.server.port
        return socket.create_connection(where, PATIENCE_S, source_address=(source, 0))


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.server.close()


@pytest.fixture
def client(place) -> Iterator[StoreClient]:
    made = place.client()
    yield made
    made.close()


def read(line: socket.socket, size: int) -> bytes:
    with line.makefile("rb") as file:
        return file.read(size)


def answer_to(line: socket.socket, secret: Secret = OURS, name: str = "n2") -> tuple[bytes, Claim]:
    """What a caller answers to the server's greeting, not yet sent; and what it claims with that."""
    return respond(secret, Hello.parse(read(line, HELLO_BYTES)), name)


def proven(line: socket.socket) -> tuple[bytes, Channel]:
    """A caller's answer that was taken; what it may say from then on."""
    answer, claim = answer_to(line)
    line.sendall(answer)
    return answer, claim.check(read(line, REPLY_BYTES))


def closed(line: socket.socket) -> bool:
    """Whether the server ends the connection."""
    try:
        while line.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def test_what_can_be_asked(client):
    ask = client.ask
    assert ask(0, b"check", b"a") == [b"0"]
    assert ask(0, b"set", b"a", b"13") == []
    assert ask(0, b"get", b"0", b"a") == [b"13"]
    assert ask(0, b"add", b"a", b"-3") == [b"10"]
    assert ask(0, b"add", b"new", b"7") == [b"7"]
    assert ask(0, b"append", b"a", b"!") == []
    assert ask(0, b"get", b"0", b"a") == [b"10!"]
    assert ask(0, b"compare_set", b"c", b"", b"first") == [b"first"]
    assert ask(0, b"compare_set", b"c", b"", b"second") == [b"first"]
    assert ask(0, b"compare_set", b"c", b"first", b"second") == [b"second"]
    assert ask(0, b"compare_set", b"d", b"x", b"y") == [b"x"]
    assert ask(0, b"check", b"a", b"c", b"new") == [b"1"]
    assert ask(0, b"count") == [b"3"]
    assert (ask(0, b"delete", b"a"), ask(0, b"delete", b"a")) == ([b"1"], [b"0"])
    assert ask(0, b"wait", b"0", b"c", b"new") == []
    assert ask(0, b"set", b"new/1", b"1") == []
    assert ask(0, b"delete_under", b"new") == [b"2"]
    assert ask(0, b"count") == [b"1"]


def test_a_value_that_comes_later_is_waited_for(place, client):
    with ExitStack() as stack:
        other = place.client()
        stack.callback(other.close)
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.extend(client.ask(PATIENCE_S, b"get", b"30000", b"b")))
        thread.start()
        other.ask(0, b"set", b"a", b"1")
        other.ask(0, b"set", b"b", b"x" * 100_003)
        thread.join(PATIENCE_S)
    assert found == [b"x" * 100_003]


def test_a_wait_of_months_ends_nothing(place, client):
    with place.stranger() as line:
        _, channel = proven(line)
        line.sendall(frame(channel, b"get", b"%d" % (100 * 86400 * 1000), b"never"))
        assert [client.ask(0, b"add", b"k", b"1") for _ in range(13)][-1] == [b"13"]


def test_a_value_that_does_not_come_is_a_time_out(client):
    with pytest.raises(StoreTimeout, match=r"Timed out after 0\.01 s waiting for roll/1"):
        client.ask(0.01, b"get", b"10", b"roll/1")
    assert client.ask(0, b"count") == [b"0"]


@pytest.mark.parametrize(
    "request_",
    [
        (b"set", b"k" * (MOST_KEY_BYTES + 1), b""),
        (b"set", b"k", b"v" * (MOST_VALUE_BYTES + 1)),
        (b"set", b"k"),
        (b"add", b"k", b"one"),
        (b"get",),
        (b"exec", b"k"),
    ],
    ids=lambda fields: fields[0].decode() if isinstance(fields, tuple) else None,
)
def test_requests_that_cannot_be_are_refused_and_change_nothing(client, request_):
    with pytest.raises(StoreError, match="the store refused a request"):
        client.ask(0, *request_)
    assert client.ask(0, b"count") == [b"0"]


def test_it_listens_on_its_address_only(place):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", place.server.port), PATIENCE_S)


def test_another_secret_is_refused_and_told_once(place, client):
    for _ in range(2):
        with pytest.raises(Refused, match="it has another secret than this machine"):
            place.client(OTHER)
    assert place.refusal.wait(PATIENCE_S)
    client.ask(0, b"count")
    assert place.said == [f"refused 127.0.0.1: ({socket.gethostname()}) it has another secret"]


def test_a_stranger_cannot_fill_the_terminal(place, client):
    for number in range(MOST_REFUSALS + 3):
        with place.stranger(f"127.0.0.{number + 2}") as line:
            line.sendall(b"\xff" * 138)
            closed(line)
    client.ask(0, b"count")
    assert place.said == [
        f"refused 127.0.0.{number + 2}: it does not speak unisono's protocol" for number in range(MOST_REFUSALS)
    ]


def test_names_that_a_stranger_makes_up_count_once(place, client):
    for number in range(MOST_REFUSALS + 3):
        with place.stranger() as line:
            line.sendall(answer_to(line, OTHER, f"n{number}")[0])
            closed(line)
    with place.stranger("127.0.0.13") as line:
        line.sendall(answer_to(line, OTHER)[0])
        closed(line)
    client.ask(0, b"count")
    assert place.said == [f"refused {there} it has another secret" for there in ("127.0.0.1: (n0)", "127.0.0.13: (n2)")]


def test_a_connection_that_cannot_be_watched_ends_alone(place, client, monkeypatch):
    register = selectors.DefaultSelector.register

    def refuse(self, line, events, data=None):
        monkeypatch.setattr(selectors.DefaultSelector, "register", register)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(selectors.DefaultSelector, "register", refuse)
    with place.stranger() as line:
        assert closed(line)
    assert client.ask(0, b"count") == [b"0"]
    place.client().close()


def test_strangers_who_say_nothing_hold_up_nobody(place, monkeypatch):
    monkeypatch.setattr("unisono.comm.topology.store_server.PROVE_S", 1000.0)  # their time does not end it
    with ExitStack() as lines:
        for _ in range(MOST_UNPROVEN * 4 + 45):
            lines.enter_context(place.stranger())
        client = place.client()
        lines.callback(client.close)
        assert client.ask(0, b"add", b"k", b"3") == [b"3"]


def test_half_an_answer_holds_up_nobody(place):
    with place.stranger() as line:
        line.sendall(answer_to(line)[0][:77])
        client = place.client()
        assert client.ask(0, b"count") == [b"0"]
        client.close()


def test_whoever_does_not_prove_the_secret_is_sent_away_in_time(monkeypatch):
    monkeypatch.setattr("unisono.comm.topology.store_server.PROVE_S", 0.05)
    place = Place()
    with place.stranger() as line:
        line.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert closed(line)
    place.server.close()


def test_what_was_recorded_is_refused(place, client):
    """All that a machine sent, sent again: neither the handshake nor a request is taken a second time."""
    with place.stranger() as line:
        answer, channel = proven(line)
        request = frame(channel, b"add", b"k", b"1")
        line.sendall(request)
        assert client.ask(PATIENCE_S, b"get", b"30000", b"k") == [b"1"]
        line.sendall(request)
        assert closed(line)
    with place.stranger() as line:
        read(line, HELLO_BYTES)
        line.sendall(answer + request)
        assert closed(line)
    assert client.ask(0, b"get", b"0", b"k") == [b"1"]


@pytest.mark.parametrize("head", [b"\0\0\0\0", b"\0\0\0\x20", b"\xff\xff\xff\xff"], ids=repr)
def test_lengths_that_cannot_be_end_the_connection_only(place, client, head):
    with place.stranger() as line:
        proven(line)
        line.sendall(head + bytes(40))
        assert closed(line)
    assert client.ask(0, b"count") == [b"0"]


def test_another_program_is_named():
    with socket.create_server(("127.0.0.1", 0)) as door:

        def greet() -> None:
            with door.accept()[0] as line:
                line.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
                closed(line)

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(Refused, match="the program that listens there is not unisono"):
            StoreClient.connect("127.0.0.1", door.getsockname()[1], OURS, PATIENCE_S)
        thread.join(PATIENCE_S)


def test_nobody_there_is_told_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    with pytest.raises(Unreachable, match="Connection refused"):
        StoreClient.connect("127.0.0.1", port, OURS, 0.1)
    with pytest.raises(Unreachable, match="no host name"):
        StoreClient.connect("a..b", port, OURS, 0.1)


def test_a_client_whose_server_ended_says_so(place, client):
    place.server.close()
    for _ in range(2):
        with pytest.raises(StoreError, match="the store is gone"):
            client.ask(0, b"count")


def test_a_server_that_stalls_is_waited_for_as_long_as_one_that_starts(place, monkeypatch):
    monkeypatch.setattr("unisono.comm.topology.store_client._GRACE_S", 0.01)
    client, stalled = place.client(), threading.Event()
    answer = store_server._Loop._answer

    def stall(self, *given):
        assert stalled.wait(PATIENCE_S)
        return answer(self, *given)

    monkeypatch.setattr(store_server._Loop, "_answer", stall)
    timer = threading.Timer(0.2, stalled.set)
    timer.start()
    assert client.ask(0, b"add", b"k", b"13") == [b"13"]
    timer.join()
    client.close()


def test_a_fork_that_ends_leaves_the_server_of_its_parent_alone():
    code = (
        "import os, sys\n"
        "from unisono.comm.topology.authentication import Secret\n"
        "from unisono.comm.topology.store_client import StoreClient\n"
        "from unisono.comm.topology.store_server import StoreServer\n"
        "secret = Secret(b'the secret of these tests', 'the test')\n"
        "server = StoreServer(['127.0.0.1'], 0, secret, print)\n"
        "pid = os.fork()\n"
        "if not pid: sys.exit(13)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 13\n"
        "client = StoreClient.connect('127.0.0.1', server.port, secret, 10.0)\n"
        "print(client.ask(0, b'count'))\n"
        "client.close(); server.close()\n"
    )
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[b'0']\n"), ended.stderr


def test_a_listener_that_was_shut_down_from_elsewhere_is_not_looked_at_again(monkeypatch):
    listeners, looks = [], []
    create, accept = socket.create_server, store_server._Loop._accept

    def remember(*given, **more):
        listeners.append(create(*given, **more))
        return listeners[0]

    def look(self, listener):
        looks.append(listener)
        accept(self, listener)

    monkeypatch.setattr(socket, "create_server", remember)
    place = Place()
    client = place.client()
    monkeypatch.setattr(store_server._Loop, "_accept", look)
    listeners[0].shutdown(socket.SHUT_RDWR)
    assert [client.ask(0, b"add", b"k", b"1") for _ in range(13)][-1] == [b"13"]
    assert len(looks) <= 1
    client.close()
    place.server.close()


def test_an_address_that_cannot_be_used_is_left_out():
    server = StoreServer(["192.0.2.13", "127.0.0.1"], 0, OURS, print)
    assert server.addresses == ["127.0.0.1"]
    StoreClient.connect("127.0.0.1", server.port, OURS, PATIENCE_S).close()
    server.close()
    with pytest.raises(OSError, match=r"Cannot assign requested address.*192\.0\.2\.13"):
        StoreServer(["192.0.2.13"], 0, OURS, print)


def test_a_port_that_is_taken_leaves_nothing_behind(place):
    with pytest.raises(OSError, match="in use"):
        StoreServer(["127.0.0.3", "127.0.0.1"], place.server.port, OURS, print)


@pytest.mark.parametrize("payload", [b"", b"\0", struct.pack(">I", 5) + b"1234", pack(b"a") + b"\0\0\0"], ids=repr)
def test_fields_that_are_cut_are_refused(payload):
    with pytest.raises(ValueError, match="field"):
        unpack(payload)
