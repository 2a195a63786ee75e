"""HTTP requests and responses as bytes: what is read of a request, and the one place that writes responses.

    request = parse_head(b"GET /TOKEN/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    encode(Response(HTTPStatus.OK, "text"), request)

The one idea: every response leaves through `encode`, so every one, also to what was no request at all, carries the
headers that forbid a browser to execute, frame, keep or guess anything. Nothing of a request is repeated in a response.

Limits: GET and HEAD, without a body. A target is a path (no absolute URI), and every byte of the head visible ASCII,
but for values of headers. Folded headers are refused, as RFC 9112 lets a server do.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPMethod, HTTPStatus
from typing import final

MOST_LINE_BYTES = 8 << 10
MOST_HEAD_BYTES = 16 << 10
MOST_HEADERS = 100
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Of responses that bring no policy of their own."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_END = re.compile(rb"\r?\n\r?\n")
_LINE = re.compile(r"([!-~]+) ([!-~]+) HTTP/(\d)\.(\d)")
_HEADER = re.compile(r"([\w!#$%&'*+.^`|~-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)", re.ASCII)


@final
class BadRequest(Exception):
    """What came is no request that is served here."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@final
@dataclass(frozen=True)
class HttpRequest:
    """The parts of a request's head that are used here."""

    method: str
    path: str
    query: str
    host: str
    keep_alive: bool
    """Whether the client may use the connection again."""


@final
@dataclass(frozen=True)
class Response:
    """What is sent. policy: its Content-Security-Policy."""

    status: HTTPStatus
    text: str
    kind: str = "text/plain"
    policy: str = POLICY
    trusted: bool = False
    """The client has proved that it may read here: its connection may stay open."""
    on_sent: Callable[[], None] | None = None
    """Called when the last byte was handed to the kernel."""


def find_end(data: bytes | bytearray) -> int:
    """Where the head ends that `data` starts with; 0 if it is not complete. A `BadRequest` if it is too long."""
    if data.find(b"\n", 0, MOST_LINE_BYTES) < 0 and len(data) >= MOST_LINE_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_URI_TOO_LONG, f"the first line has more than {MOST_LINE_BYTES:,} bytes")
    if found := _END.search(data, 0, MOST_HEAD_BYTES):
        return found.end()
    if len(data) >= MOST_HEAD_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MOST_HEAD_BYTES:,} bytes of headers")
    return 0


def parse_head(head: bytes) -> HttpRequest:
    """The request that a complete head is; a `BadRequest` if it is none."""
    first, *lines = re.split("\r?\n", head.decode("latin-1").rstrip("\r\n"))
    line = _LINE.fullmatch(first)
    if line is None:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the first line is not that of an HTTP request")
    method, target, major, minor = line.groups()
    if major != "1":
        raise BadRequest(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here")
    headers = _headers_of(lines)
    hosts = headers.get("host", [])
    if len(hosts) > 1 or (minor != "0" and not hosts):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "one Host is needed")
    if headers.get("transfer-encoding") or headers.get("content-length", ["0"]) != ["0"]:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body here")
    if method not in ("GET", "HEAD"):
        known = method in HTTPMethod.__members__
        status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_IMPLEMENTED
        raise BadRequest(status, "there is nothing but to read: GET or HEAD")
    if not target.startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "what is asked for starts with a slash")
    path, _, query = target.partition("?")
    keep_alive = minor != "0" and "close" not in " ".join(headers.get("connection", [])).lower()
    return HttpRequest(method, path, query, hosts[0] if hosts else "", keep_alive)


def _headers_of(lines: list[str]) -> dict[str, list[str]]:
    """Values by name in small letters."""
    if len(lines) > MOST_HEADERS:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MOST_HEADERS} headers")
    found: dict[str, list[str]] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header is not NAME: VALUE")
        found.setdefault(header[1].lower(), []).append(header[2].rstrip(" \t"))
    return found


def encode(response: Response, request: HttpRequest | None = None) -> bytes:
    """The bytes of a response. request: None if it could not be read."""
    body = response.text.encode(errors="replace")
    status = response.status
    headers = HEADERS | {
        "Connection": "keep-alive" if stays_open(response, request) else "close",
        "Content-Length": str(len(body)),
        "Content-Security-Policy": response.policy,
        "Content-Type": f"{response.kind}; charset=utf-8",
        "Date": formatdate(usegmt=True),
    }
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = "GET, HEAD"
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    head = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
    return head if request is not None and request.method == "HEAD" else head + body


def stays_open(response: Response, request: HttpRequest | None) -> bool:
    """Whether the connection is used again after this response."""
    return response.trusted and request is not None and request.keep_alive
