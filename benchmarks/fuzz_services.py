"""Inputs for `fuzz.py`: bytes for the live page, as a stranger on the same machine could send them.

The one idea: each input is a server of its own, a connection or several with damaged requests, and then a right one,
which must be answered: whatever came before, the page still works.

    given = make_http(random, sandbox)

Limits: slow connections take wall time, so there are few of them here.
"""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from fuzz_http import requests as _others
from fuzz_mutations import ODD_TEXTS, mutate_bytes
from fuzz_sandbox import Sandbox
from fuzz_worker import ACCEPTED, Input

if TYPE_CHECKING:
    from unisono.report.live.page_server import LiveServer

TOKEN = "TOKEN"
"""Stands for the server's token in a request."""
CONNECTIONS = 5
ANSWER_S = 20.0
STEP_S = 0.02


def requests(random: Random) -> Iterator[bytes]:
    """Requests without end, most of them damaged; half of them `fuzz_http.py`'s."""
    others = _others(random, TOKEN)
    while True:
        if random.random() < 0.5:
            yield next(others)
            continue
        path = random.choice(
            (
                "/",
                "/TOKEN/",
                "/TOKEN/content",
                "/TOKEN/content?seen=0",
                "/TOKEN/x",
                "/TOKEN",
                "//",
                "*",
                "http://a/TOKEN/",
                f"/{'a' * 70_000}",
                "/%00",
                "/é",
            )
        )
        method = random.choice(
            ("GET", "GET", "GET", "HEAD", "POST", "", "get", "OPTIONS", "G\x1bET", "PRI * HTTP/2.0", "A" * 5000)
        )
        version = random.choice(
            ("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1.1", "HTTP/99999999999.1", "", "x")
        )
        heads = random.sample(
            (
                "Host: 127.0.0.1", "Host: localhost:1", "Host: evil.example", "Host:", "Host: 127.0.0.1\r\nHost: b",
                "Content-Length: -1", "Content-Length: 99999999999",
                "Transfer-Encoding: chunked", "Expect: 100-continue", "Connection: keep-alive", "Connection: close",
                "Range: bytes=0-", f"X: {random.choice(ODD_TEXTS)}",
                f"Cookie: {'a' * 70_000}", "no colon", " folded", ": empty",
                *[f"A{number}: b" for number in range(3)], "\r\n".join(f"N{number}: x" for number in range(150)),
            ),
            random.randrange(5),
        )  # fmt: skip
        whole = "\r\n".join([f"{method} {path} {version}", *heads, "", ""]).encode("utf-8", "surrogatepass")
        yield whole if random.random() < 0.6 else mutate_bytes(random, whole)[0]


def make_http(random: Random, sandbox: Sandbox) -> Input:
    """A few connections, each with one or two requests."""
    source = requests(random)
    sent = [
        b"".join(next(source) for _ in range(random.choice((1, 1, 2)))) for _ in range(random.randint(1, CONNECTIONS))
    ]
    hurried = [random.random() < 0.5 for _ in sent]
    about = " | ".join(repr(data[:30]) for data in sent)
    return Input((), ACCEPTED, about, call=partial(_serve, sandbox.template / "sync", sent, hurried))


@contextmanager
def _served(server: "LiveServer") -> Iterator[None]:
    """By a thread of its own, which has ended when the block is left."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            server.step(STEP_S)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(ANSWER_S)


def _serve(run: Path, sent: list[bytes], hurried: list[bool]) -> None:
    """In the child."""
    from unisono.report.live.page_server import LiveServer

    with LiveServer([run]) as server, _served(server):
        token = server.token.encode()
        place = ("127.0.0.1", int(server.address.split(":")[2].partition("/")[0]))
        for data, leave in zip(sent, hurried, strict=True):
            with socket.create_connection(place, ANSWER_S) as line:
                try:
                    line.sendall(data.replace(TOKEN.encode(), token))
                    line.shutdown(socket.SHUT_WR)
                    while not leave and line.recv(1 << 16):
                        pass
                except OSError:
                    pass  # the server need not hear everything out
        with socket.create_connection(place, ANSWER_S) as line:
            line.sendall(b"GET /%s/content HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % token)
            answer = b""
            while piece := line.recv(1 << 16):
                answer += piece
        if not answer.startswith(b"HTTP/1.1 200 "):
            sys.exit(f"after these requests a right one is answered with {answer[:60]!r}")
