"""Requests that no browser would send, to the live page: each is answered with a status or the connection is closed.

    python benchmarks/fuzz_http.py --count 20000             # a new seed each time, which is printed

`requests` draws bytes that know what HTTP looks like: methods, targets, headers, bodies, several requests at once, and
damage to any of them. `send` brings one of them to a server: at once or in pieces, whole or cut, read or reset.
`faults_of` judges the answers. The same three are used by the tests, in process, with a seed that is printed.

Limits: what a client sees. That nothing is left in the server is for its owner to look at.
"""

import argparse
import os
import re
import secrets
import socket
import struct
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from unisono.recipe import Recipe
from unisono.report.live.page_server import LiveServer
from unisono.storage.rundir import RunDirectory

METHODS = [
    "GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "CONNECT", "get", "BREW", "G\x00T", "", "G" * 9000,
]  # fmt: skip
TARGETS = [
    "/{token}/", "/{token}/", "/{token}/content", "/{token}/content?seen=%00", "/{token}", "/", "//", "/{token}/../x",
    "/%2e%2e/%2e%2e/etc/passwd", "/{token}/%2e%2e%2frecipe.toml", "/\x00/", "/\xff\xfe/", "/" + "a" * 5000,
    "/" + "a" * 20000,
    "http://127.0.0.1/{token}/", "http://evil.example/", "https://[::1/", "*", "", "/<script>alert(1)</script>",
    "/{token}/?" + "&" * 3000, "evil.example:443", "/a b", "/\u00fc",
]  # fmt: skip
VERSIONS = ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.13", "http/1.1", ""]
HEADERS = [
    "Host: localhost", "Host: 127.0.0.1:13", "Host: evil.example", "Host:", "host: localhost, localhost",
    "HOST : localhost",
    "Connection: close", "Connection: keep-alive, Upgrade", "Content-Length: 13", "Content-Length: -1",
    "Content-Length: 0", "Content-Length: 99999999999999999999", "Content-Length: 1\r\nContent-Length: 2",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Expect: 100-continue", "Upgrade: h2c", "Range: bytes=0-,0-,0-",
    "Cookie: " + "c" * 3000,
    "X-Huge: " + "h" * 20000, "no colon", " folded", "\tfolded", ": nameless", "X-Nul: \x00", "X-Return: a\rb",
    "X-\xe9: 1",
    "X-Text: \xe9\xff", "Accept: */*", "Origin: null", "Referer: http://evil.example/{token}/",
]  # fmt: skip
BODIES = ["", "", "thirteen bytes", "5\r\nabcde\r\n0\r\n\r\n", "ffffffffffffffff\r\n", "\x00" * 4096, "x" * 70000]
ENDS = ["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", ""]
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [\w -]+\r\n")
NEEDED = (
    b"Content-Security-Policy: default-src 'none'",
    b"X-Content-Type-Options: nosniff",
    b"Cache-Control: no-store",
)
TIMEOUT_S = 60.0


def requests(random: Random, token: str = "wrong") -> Iterator[bytes]:
    """Without an end. token: that of the page, for requests that get further than to a refusal."""
    while True:
        data = b"".join(_request(random, token) for _ in range(random.choice((1, 1, 1, 2, 13))))
        yield _damaged(random, data) if random.random() < 0.3 else data


def _request(random: Random, token: str) -> bytes:
    if random.random() < 0.2:  # one that is served, so that what follows it is looked at
        return f"GET /{token}/content?seen= HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    end = random.choice(ENDS) if random.random() < 0.3 else "\r\n"
    gap = " " if random.random() < 0.9 else random.choice(("  ", "\t", ""))
    line = gap.join((_mostly(random, METHODS), random.choice(TARGETS), _mostly(random, VERSIONS)))
    count = random.choice((0, 1, 2, 5, 300)) if random.random() < 0.2 else random.randrange(4)
    headers = [*random.choices(HEADERS, k=count), *(["Host: localhost"] if random.random() < 0.7 else [])]
    text = end.join((line, *headers, "", "")) + random.choice(BODIES)
    return text.replace("{token}", token).encode("latin-1" if random.random() < 0.8 else "utf-8", "replace")


def _mostly(random: Random, choices: list[str]) -> str:
    """The first of them as often as not: what is refused at its first word tells nothing of the others."""
    return choices[0] if random.random() < 0.5 else random.choice(choices)


def _damaged(random: Random, data: bytes) -> bytes:
    """Bits turned, a stretch cut out or repeated, or nothing that resembles a request."""
    found = bytearray(data)
    kind = random.randrange(4)
    if kind == 0:
        for _ in range(random.choice((1, 1, 13))):
            found[random.randrange(len(found))] ^= 1 << random.randrange(8)
    elif kind == 1:
        start = random.randrange(len(found))
        del found[start : start + random.randrange(40)]
    elif kind == 2:
        start = random.randrange(len(found))
        found[start:start] = found[start : start + random.randrange(40)] * random.choice((1, 7))
    else:
        return random.randbytes(random.choice((1, 3, 517, 20000)))
    return bytes(found)


def send(port: int, data: bytes, random: Random) -> bytes | None:
    """What came back until the server closed; None if this client did not wait for it."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
        way = random.choice(("whole", "whole", "whole", "pieces", "cut", "close", "reset"))
        if way in ("cut", "reset"):
            data = data[: random.randrange(len(data) + 1)]
        try:
            step = max(1, len(data) // 7) if way == "pieces" else max(1, len(data))
            for start in range(0, len(data), step):
                client.sendall(data[start : start + step])
            if way == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if way in ("reset", "close"):
                return None
            client.shutdown(socket.SHUT_WR)
            return _received(client)
        except (ConnectionResetError, BrokenPipeError):  # refused while we were still sending
            return None


def _received(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def faults_of(answer: bytes) -> list[str]:
    """What is wrong with all that a server sent over one connection; nothing at all is right, too."""
    faults = []
    while answer:
        status = _STATUS.match(answer)
        head, _, rest = answer.partition(b"\r\n\r\n")
        if status is None:
            return [*faults, f"no status line: {answer[:80]!r}"]
        faults += [f"{status[1].decode()} without {header.decode()}" for header in NEEDED if header not in head]
        if b"\nServer:" in head or b"<script>alert" in answer:
            faults.append(f"{status[1].decode()} tells what it should not")
        # A response to HEAD has a length and no body: then the next one follows at once.
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        answer = rest if _STATUS.match(rest) else rest[length:]
    return faults


def statuses_of(answer: bytes) -> list[str]:
    return [status.decode() for status in re.findall(rb"HTTP/1\.1 (\d{3}) [\w -]+\r\nCache-Control", answer)]


def serve(server: LiveServer, over: threading.Event) -> None:
    while not over.is_set():
        server.step(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    given = parser.parse_args()
    random, seen, faults, over = Random(given.seed), Counter[str](), 0, threading.Event()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        with RunDirectory.make(str(Path(folder) / "run"), Recipe()) as directory:
            path = directory.path
        with LiveServer([path]) as server:
            before = len(os.listdir("/proc/self/fd"))
            thread = threading.Thread(target=serve, args=(server, over))
            thread.start()
            try:
                for data in islice(requests(random, server.token), given.count):
                    answer = send(server.port, data, random)
                    seen.update(["not waited for"] if answer is None else statuses_of(answer) or ["closed"])
                    for fault in faults_of(answer or b""):
                        faults += 1
                        print(f"{fault}: {data[:300]!r}")
            finally:
                over.set()
                thread.join()
            while server.http.connections:
                server.step(0.05)
            left = len(os.listdir("/proc/self/fd")) - before
    print(", ".join(f"{what}: {count:,}" for what, count in sorted(seen.items())))
    print(f"{given.count:,} inputs, {faults} faults, {left} descriptors left")
    sys.exit(1 if faults or left else 0)


if __name__ == "__main__":
    main()
