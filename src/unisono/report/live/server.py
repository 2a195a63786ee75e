"""The live page: served to browsers of this machine that know the token, until somebody ends it.

    with LiveServer([Path("runs/mine")]) as server: print(server.address); server.serve()

The one idea: it listens on loopback alone, and everything lies under a path that nobody can guess, so that neither
another user of the machine nor another page in the same browser can read a run. A request whose Host is not this
address (a name that was made to lead here) is refused as well.

Limits: plain HTTP, which never leaves the machine: from elsewhere use `ssh -L`. Who may read your browser's history can
read the page, too.
"""

import json
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from typing import final

from unisono import __version__
from unisono.errors import UserError
from unisono.report.live.following import Follower, ended

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
"""Under which it may be asked for, with any port: `ssh -L` may lead here from another one."""
AWAY_S = 3.0
"""A reader who has asked for nothing for this long has gone; pages ask every second."""
GRACE_S = 10.0
"""How long a reader may take to fetch the end of a run."""
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@final
class LiveServer(ThreadingHTTPServer):
    """Serves the page of some runs. port: 0 takes a free one."""

    daemon_threads = True

    def __init__(self, paths: Sequence[Path], port: int = 0) -> None:
        self.paths = [path.expanduser() for path in paths]
        self.follower = Follower(self.paths)
        self.token = secrets.token_urlsafe(24)
        self.seen = ""
        """The last version of the contents of ended runs that has reached a reader."""
        self.asked = -inf
        """When a reader last asked, or got an answer."""
        self.asking: set[int] = set()
        """Threads that are about to answer."""
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no such port"
            raise UserError(f"--port {port}: {reason}", hint="leave it out: a free one is taken") from None
        self.timeout = 0.25

    @property
    def address(self) -> str:
        """What to open. Who knows it can read the runs."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def serve(self, *, until_end: bool = False) -> None:
        """Until Ctrl-C; or until the runs have ended and whoever looks at them has seen how."""
        ended_at = None
        while True:
            self.handle_request()
            if until_end and ended(self.paths):
                now = time.monotonic()
                ended_at = ended_at or now
                view = self.follower.look()
                nobody = now - self.asked > AWAY_S and not self.asking
                seen = view.fresh and view.version == self.seen
                if nobody or seen or now - ended_at > GRACE_S:
                    return


@final
class _Handler(BaseHTTPRequestHandler):
    """One request. Reads only: there is nothing that a reader could change."""

    server: LiveServer
    protocol_version = "HTTP/1.1"
    server_version = f"unisono/{__version__}"
    sys_version = ""
    timeout = 5  # a connection that says nothing; pages ask every second

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        _, given, *rest = [*path.split("/", 2), ""]
        if self.headers.get("Host", "").partition(":")[0] not in NAMES:
            self._refuse("asked for under another name than its address")
        elif not compare_digest(given.encode(), self.server.token.encode()):
            self._refuse("the token in the address is wrong")
        elif rest[0] == "" and path.endswith("/"):
            with self._asking():
                self._send_page()
        elif rest[0] == "content":
            with self._asking():
                self._send_content(query.removeprefix("seen="))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is nothing here\n")

    do_HEAD = do_GET

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A reader is there, and on a busy machine its answer may take longer than readers are waited for."""
        server, thread = self.server, threading.get_ident()
        server.asked = time.monotonic()
        server.asking.add(thread)
        try:
            yield
        finally:
            server.asked = time.monotonic()
            server.asking.discard(thread)

    def _send_page(self) -> None:
        try:
            page = self.server.follower.page()
        except UserError as error:  # moved or removed meanwhile
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n")
        else:
            self._send(HTTPStatus.OK, "text/html", page)

    def _send_content(self, seen: str) -> None:
        """`seen`: the version that the reader has."""
        view = self.server.follower.look()
        html = None if seen == view.version else view.html
        news = {"version": view.version, "ended": view.ended, "age_s": view.age_s, "html": html}
        self._send(HTTPStatus.OK, "application/json", json.dumps(news))
        self.server.seen = view.version if view.ended else ""  # sent: the server may end now

    def _refuse(self, why: str) -> None:
        hint = "HINT: open the address that `unisono watch` printed, all of it"
        self._send(HTTPStatus.FORBIDDEN, "text/plain", f"403: {why}\n{hint}\n")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError):  # a reader that went away
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the address of each line would hold the token."""
