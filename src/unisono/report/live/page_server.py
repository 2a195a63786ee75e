"""The live page: served to browsers of this machine that know the token, until it is ended.

    with LiveServer([Path("runs/mine")]) as server: print(server.address); server.serve()

The one idea: it listens on loopback alone, and everything lies under a path that cannot be guessed, so that neither
another user of the machine nor another page in the same browser can read a run. A request whose Host is not this
address (a name that was made to lead here) is refused as well.

Limits: plain HTTP, which never leaves the machine: from elsewhere use `ssh -L`. Who may read your browser's history can
read the page, too.
"""

import json
import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self, final

from unisono.errors import UserError
from unisono.files import expand_user
from unisono.report.html.document import policy
from unisono.report.live.follower import Follower, ended
from unisono.report.live.http_message import HttpRequest, Response
from unisono.report.live.http_server import HttpServer

HOST = "127.0.0.1"
_NAMES = re.compile(rf"({re.escape(HOST)}|localhost)(:\d{{1,5}})?", re.IGNORECASE | re.ASCII)
"""Under which it may be asked for, with any port: `ssh -L` may lead here from another one."""
AWAY_S = 3.0
"""A reader who has asked for nothing for this long has gone; pages ask every second."""
GRACE_S = 10.0
"""How long a reader may take to fetch the end of a run."""
TICK_S = 0.25


@final
class LiveServer:
    """Serves the page of some runs. port: 0 takes a free one."""

    def __init__(self, paths: Sequence[Path], port: int = 0) -> None:
        self.paths = [expand_user(path) for path in paths]
        self.follower = Follower(self.paths)
        self.token = secrets.token_urlsafe(24)
        self.seen = ""
        """The last version of the contents of ended runs that has reached a reader."""
        self.asked = -inf
        """When a reader last asked, or got an answer."""
        hint = "leave it out: a free one is taken"
        if not 0 <= port < 1 << 16:
            raise UserError(f"--port {port}: no such port", hint=hint)
        try:
            self.http = HttpServer(HOST, port, self.respond)
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}", hint=hint) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.__exit__(kind, error, trace)

    @property
    def port(self) -> int:
        return self.http.port

    @property
    def origin(self) -> str:
        """Where it listens: an address without the token, which all users may read."""
        return f"http://{HOST}:{self.port}/"

    @property
    def address(self) -> str:
        """What to open. Who knows it can read the runs."""
        return f"{self.origin}{self.token}/"

    def serve(self, *, until_end: bool = False) -> None:
        """Until Ctrl-C; or until the runs have ended and the browsers that show them have seen how."""
        ended_at = None
        while True:
            self.step(TICK_S)
            gone = not any(map(os.path.isdir, self.paths))  # a run that failed before it began
            if until_end and (gone or ended(self.paths)):
                now = time.monotonic()
                ended_at = ended_at or now
                nobody = now - self.asked > AWAY_S and not self.http.is_sending
                if nobody or now - ended_at > GRACE_S or self._is_end_seen():
                    return

    def _is_end_seen(self) -> bool:
        try:
            view = self.follower.look()
        except Exception:  # no descriptors, say, or unforeseen records: readers are told, see `_shown`
            return False
        return view.fresh and view.version == self.seen

    def step(self, timeout_s: float) -> None:
        """Serves those who ask within `timeout_s`."""
        self.http.step(timeout_s)

    def respond(self, request: HttpRequest) -> Response:
        """Reads only: there is nothing that a reader could change."""
        _, given, *rest = [*request.path.split("/", 2), ""]
        if not _NAMES.fullmatch(request.host):
            return _refusal("asked for under another name than its address")
        if not compare_digest(given.encode(), self.token.encode()):
            return _refusal("the token in the address is wrong")
        self._note_reader()
        response = self._shown(rest[0], request)
        return replace(response, trusted=True, on_sent=response.on_sent or self._note_reader)

    def _shown(self, name: str, request: HttpRequest) -> Response:
        """What lies under the token."""
        try:
            if name == "" and request.path.endswith("/"):
                page = self.follower.page()
                return Response(HTTPStatus.OK, page, "text/html", f"{policy(live=True)}; frame-ancestors 'none'")
            if name == "content":
                return self._content(request.query.removeprefix("seen="))
        except UserError as error:  # moved or removed meanwhile
            return Response(HTTPStatus.NOT_FOUND, f"404: {error}\n")
        except (OSError, MemoryError) as error:  # no descriptors, say: the page asks again
            reason = getattr(error, "strerror", None) or type(error).__name__
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"503: the run cannot be read now: {reason}\n")
        except Exception as error:  # unforeseen records: the server goes on
            told = f"500: no page could be made of these records: {type(error).__name__}: {error}\n"
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, told)
        return Response(HTTPStatus.NOT_FOUND, "404: there is nothing here\n")

    def _content(self, seen: str) -> Response:
        """`seen`: the version that the reader has."""
        view = self.follower.look()
        html = None if seen == view.version else view.html
        news = {"version": view.version, "ended": view.ended, "age_s": view.age_s, "html": html}
        on_sent = partial(self._note_seen, view.version if view.ended else "")
        return Response(HTTPStatus.OK, json.dumps(news), "application/json", on_sent=on_sent)

    def _note_reader(self) -> None:
        self.asked = time.monotonic()

    def _note_seen(self, version: str) -> None:
        """Sent: the server may end now."""
        self._note_reader()
        self.seen = version


def _refusal(why: str) -> Response:
    hint = "HINT: open the address that `unisono watch` gave you, all of it"
    return Response(HTTPStatus.FORBIDDEN, f"403: {why}\n{hint}\n")
