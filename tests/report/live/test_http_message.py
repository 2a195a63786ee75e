"""What is a request, what is not, and what every response carries."""

from http import HTTPStatus

import pytest

from unisono.report.live.http_message import (
    HEADERS,
    MOST_HEAD_BYTES,
    MOST_HEADERS,
    MOST_LINE_BYTES,
    BadRequest,
    HttpRequest,
    Response,
    encode,
    find_end,
    parse_head,
    stays_open,
)

HOST = "Host: localhost:13\r\n"


def test_a_request():
    found = parse_head(f"GET /a//b/?seen=1?2 HTTP/1.1\r\n{HOST}X-Other: \t caf\xe9 \r\n\r\n".encode("latin-1"))
    assert found == HttpRequest("GET", "/a//b/", "seen=1?2", "localhost:13", keep_alive=True)


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (f"HEAD / HTTP/1.1\r\n{HOST}Connection: Upgrade, Close\r\n\r\n", False),
        ("HEAD / HTTP/1.0\r\n\r\n", False),
        (f"HEAD / HTTP/1.1\n{HOST.strip()}\n\n", True),
        (f"HEAD / HTTP/1.7\r\n{HOST}Content-Length: 0\r\n\r\n", True),
    ],
)
def test_whether_a_client_wants_to_go_on(head, kept):
    assert parse_head(head.encode()).keep_alive is kept


REFUSED = {
    400: [
        *(
            f"{line}\r\n{HOST}"
            for line in (
                "", "GET", "GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET / HTTP/11",
                "GET / http/1.1", "GET /\x00 HTTP/1.1", "GET /\xe9 HTTP/1.1", "GET http://localhost/ HTTP/1.1",
                "GET * HTTP/1.1", "\x16\x03\x01 / HTTP/1.1", "GET /\r HTTP/1.1",
            )
        ),
        *(
            f"GET / HTTP/1.1\r\n{HOST}{header}\r\n"
            for header in (
                "no colon", " folded: 1", "a b: 1", ": 1", "a : 1", "a: \x00", "a: b\rc", "Host: localhost", "\xe9: 1",
            )
        ),
        "GET / HTTP/1.1\r\nX-Other: 1\r\n",  # no host
    ],
    405: [f"{method} / HTTP/1.1\r\n{HOST}" for method in ("POST", "DELETE", "OPTIONS")],
    413: [  # a body is refused, so it is never taken for a request
        f"GET / HTTP/1.1\r\n{HOST}{header}\r\n"
        for header in (
            "Content-Length: 1", "Content-Length: 00", "Content-Length: -1", "Content-Length: 0\r\nContent-Length: 0",
            "Transfer-Encoding: chunked", "Transfer-Encoding: identity\r\nContent-Length: 0",
        )
    ],
    431: [f"GET / HTTP/1.1\r\n{HOST}" + "".join(f"h{n}: 1\r\n" for n in range(MOST_HEADERS))],
    501: [f"{method} / HTTP/1.1\r\n{HOST}" for method in ("get", "BREW")],
    505: [f"GET / {version}\r\n{HOST}" for version in ("HTTP/0.9", "HTTP/2.0", "HTTP/9.9")],
}  # fmt: skip


@pytest.mark.parametrize(("status", "head"), [(status, head) for status, heads in REFUSED.items() for head in heads])
def test_what_is_no_request_is_refused(status, head):
    with pytest.raises(BadRequest) as refused:
        parse_head(f"{head}\r\n".encode("latin-1"))
    assert refused.value.status == status


def test_where_a_head_ends():
    whole = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    assert find_end(whole + b"GET /") == len(whole)
    assert [find_end(whole[:end]) for end in range(len(whole))] == [0] * len(whole)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"G" * MOST_LINE_BYTES, 414),
        (b"G" * MOST_LINE_BYTES + b"\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: 1\r\n" * (MOST_HEAD_BYTES // 6), 431),
        (b"GET / HTTP/1.1\r\na: " + b"1" * MOST_HEAD_BYTES + b"\r\n\r\n", 431),
    ],
)
def test_a_head_that_is_too_long(data, status):
    with pytest.raises(BadRequest) as refused:
        find_end(data)
    assert refused.value.status == status
    assert find_end(data[: MOST_LINE_BYTES - 1]) == 0


@pytest.mark.parametrize(
    "status", [HTTPStatus(n) for n in (200, 400, 403, 404, 405, 408, 413, 414, 431, 501, 503, 505)]
)
def test_every_response_has_the_headers_that_protect_its_reader(status):
    head, _, body = encode(Response(status, "a text é\n")).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == f"HTTP/1.1 {status.value} {status.phrase}"
    assert headers | HEADERS == headers
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["Connection"], headers["Content-Length"], len(body)) == ("close", "10", 10)
    assert "Server" not in headers


def test_a_response_to_head_has_no_body():
    head = HttpRequest("HEAD", "/", "", "localhost", keep_alive=True)
    whole = encode(Response(HTTPStatus.OK, "13 characters"), None)
    assert encode(Response(HTTPStatus.OK, "13 characters"), head) == whole.removesuffix(b"13 characters")


def test_only_a_trusted_client_s_connection_stays_open():
    asked = HttpRequest("GET", "/", "", "localhost", keep_alive=True)
    assert stays_open(Response(HTTPStatus.OK, "", trusted=True), asked)
    assert not stays_open(Response(HTTPStatus.OK, ""), asked)
    assert not stays_open(Response(HTTPStatus.OK, "", trusted=True), None)
