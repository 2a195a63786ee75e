"""Requests that nobody should send: a status or a closed connection, nothing on stderr, nothing left."""

import secrets
import threading
import time
from itertools import islice
from random import Random

from fuzz_http import faults_of, requests, send, statuses_of

from support.report.made_run import make
from support.report.serving import served

COUNT = 1000


def test_anything_is_answered_or_closed_and_the_next_reader_is_served(tmp_path, capfd):
    seed = secrets.randbelow(1 << 32)
    random = Random(seed)
    good, seen = b"GET /%s/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", set()
    with served([make(tmp_path / "run")]) as server:
        threads = threading.active_count()
        for data in islice(requests(random, server.token), COUNT):
            answer = send(server.port, data, random)
            seen.update(statuses_of(answer or b""))
            assert faults_of(answer or b"") == [], f"seed {seed}: {data[:2000]!r}"
        deadline = time.monotonic() + 60.0
        while server.http.connections and time.monotonic() < deadline:  # it notices that they went
            time.sleep(0.01)
        assert (server.http.connections, threading.active_count()) == (0, threads)
        answer = b""
        while not answer:  # the way is drawn, too
            answer = send(server.port, good % server.token.encode(), random) or b""
        assert statuses_of(answer) == ["200"]
        assert b"Verdict" in answer
    assert {"200", "400"} <= seen
    assert capfd.readouterr() == ("", "")


def test_what_is_wrong_with_an_answer_is_found():
    right = b"HTTP/1.1 403 Forbidden\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    right += b"Content-Security-Policy: default-src 'none'\r\nContent-Length: 3\r\n\r\nno\n"
    assert faults_of(right * 3) == []
    assert faults_of(b"") == []
    assert faults_of(right + b"Traceback") == ["no status line: b'Traceback'"]
    assert faults_of(right.replace(b"no-store", b"max-age=13")) == ["403 without Cache-Control: no-store"]
    assert faults_of(right.replace(b"Content-Length", b"Server: BaseHTTP/0.6\r\nContent-Length")) == [
        "403 tells what it should not"
    ]
