"""Who gets the page, and who does not."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.report.made_run import make
from support.report.serving import served
from unisono.errors import UserError
from unisono.report.live import page_server
from unisono.report.live.page_server import LiveServer


@pytest.fixture
def server(tmp_path) -> Iterator[LiveServer]:
    with served([make(tmp_path / "run")]) as found:
        yield found


def ask(server: LiveServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, headers={"Connection": "close", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def test_the_page_for_those_who_know_the_token(server):
    status, page, headers = ask(server, f"/{server.token}/")
    assert status == 200
    assert "connect-src 'self'" in page
    assert "Verdict" in page
    assert server.token not in page
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    told = headers["Content-Security-Policy"]
    assert "script-src 'sha256-" in told
    assert told.endswith("; frame-ancestors 'none'")
    assert told.removesuffix("; frame-ancestors 'none'") in page


def test_anybody_else_gets_403(server):
    near = f"/{server.token[:-1]}/", f"/{server.token}x/"
    for path in ("/", "/wrong/", "/wrong/content", "/favicon.ico", "//", "/%00/", "/" + "x" * 3000, "//[", *near):
        status, text, _ = ask(server, path)
        assert (status, "HINT" in text, "Verdict" in text, server.token in text) == (403, True, False, False), path


def test_a_name_that_was_made_to_lead_here_is_refused(server):
    evil = ("evil.example", "evil.example:80", "localhost.evil.example", "a@localhost")
    for host in (*evil, "", "localhost:", "localhost:1/", "[::1]"):
        assert ask(server, f"/{server.token}/", Host=host)[0] == 403, host
    assert ask(server, f"/{server.token}/", Host="LocalHost:1234")[0] == 200


def test_nothing_else_lies_under_the_token(server):
    for path in ("recipe.toml", "../recipe.toml", "content/more", "..%2f..%2fetc%2fpasswd"):
        assert ask(server, f"/{server.token}/{path}")[0] == 404
    assert ask(server, f"/{server.token}")[0] == 404


def test_there_is_nothing_that_a_reader_could_change(server):
    status, _, headers = ask(server, f"/{server.token}/", "POST")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    _, page, _ = ask(server, f"/{server.token}/")
    status, text, headers = ask(server, f"/{server.token}/", "HEAD")
    assert (status, text, headers["Content-Length"]) == (200, "", str(len(page.encode())))


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()])
def test_a_run_that_cannot_be_read_now_is_asked_for_again(server, monkeypatch, error):
    def failing() -> None:
        raise error

    monkeypatch.setattr(server.follower, "page", failing)
    status, text, headers = ask(server, f"/{server.token}/")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "cannot be read now" in text


def test_records_nobody_thought_of_do_not_end_the_server(server, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(server.follower, "look", lambda: 13 // 0)
        status, text, _ = ask(server, f"/{server.token}/content")
        assert (status, "ZeroDivisionError" in text) == (500, True)
        assert not server._is_end_seen()
    assert ask(server, f"/{server.token}/content")[0] == 200


def test_a_page_that_is_asked_for_again_is_not_made_again(server, monkeypatch):
    made = []
    monkeypatch.setattr("unisono.report.live.follower.document", lambda runs, live: made.append(runs) or "a page")
    monkeypatch.setattr("unisono.report.live.follower.PAUSE_S", 600.0)
    for _ in range(5):
        assert ask(server, f"/{server.token}/")[:2] == (200, "a page")
        (server.paths[0] / "summary.json").touch()
    assert len(made) == 1


def test_contents_are_sent_once(server):
    status, text, _ = ask(server, f"/{server.token}/content")
    news = json.loads(text)
    assert (status, news["ended"]) == (200, True)
    assert news["html"].startswith("<section")
    again = json.loads(ask(server, f"/{server.token}/content?seen={news['version']}")[1])
    assert (again["version"], again["html"]) == (news["version"], None)


def test_a_run_that_is_removed_is_said(server):
    (server.paths[0]).rename(server.paths[0].with_name("elsewhere"))
    assert ask(server, f"/{server.token}/")[0] == 404


def test_it_listens_on_loopback_alone(server):
    assert server.http._listener.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_or_none(tmp_path):
    run = make(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="Address already in use"):
        LiveServer([run], taken.getsockname()[1])
    with pytest.raises(UserError, match="no such port"):
        LiveServer([run], 70000)


def test_until_the_end_leaves_at_once_if_nobody_looks(tmp_path):
    with LiveServer([make(tmp_path / "run")]) as server:
        server.serve(until_end=True)


def test_until_the_end_leaves_when_the_run_was_removed(tmp_path, monkeypatch):
    """As one is that fails before its first epoch."""
    monkeypatch.setattr(page_server, "TICK_S", 0.01)
    run = make(tmp_path / "run")
    with LiveServer([run]) as server:
        run.rename(tmp_path / "elsewhere")
        serving = threading.Thread(target=server.serve, kwargs={"until_end": True}, daemon=True)
        serving.start()
        serving.join(30.0)
        assert not serving.is_alive()


def test_until_the_end_lets_a_reader_see_the_end(tmp_path, monkeypatch):
    """A reader who has seen an earlier version is waited for until it has fetched the last."""
    monkeypatch.setattr(page_server, "AWAY_S", 60.0)
    monkeypatch.setattr(page_server, "GRACE_S", 60.0)
    run = make(tmp_path / "run")
    end = (run / "summary.json").read_text()
    (run / "summary.json").unlink()
    with LiveServer([run]) as server:
        thread = threading.Thread(target=server.serve, kwargs={"until_end": True})
        thread.start()
        before = json.loads(ask(server, f"/{server.token}/content")[1])
        (run / "summary.json").write_text(end)
        version = before["version"]
        while version == before["version"]:
            news = json.loads(ask(server, f"/{server.token}/content?seen={version}")[1])
            version = news["version"]
        assert news["ended"]
        thread.join(30.0)
        assert not thread.is_alive()


def test_until_the_end_waits_while_the_last_answer_is_on_its_way(tmp_path, monkeypatch):
    """The end of the process ends the connections: an answer counts when it has been sent."""
    monkeypatch.setattr(page_server, "AWAY_S", 0.0)
    monkeypatch.setattr(page_server, "GRACE_S", 60.0)
    run = make(tmp_path / "run")
    with LiveServer([run]) as server, socket.socket() as reader:
        contents = replace(server.follower.look(), html="x" * (64 << 20))  # more than the kernel keeps for a reader
        monkeypatch.setattr(server.follower, "look", lambda: contents)
        reader.settimeout(60.0)
        reader.connect(("127.0.0.1", server.port))
        reader.sendall(f"GET /{server.token}/content HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while not server.http.is_sending:
            server.step(60.0)
        monkeypatch.setattr(page_server, "TICK_S", 0.01)
        serving = threading.Thread(target=server.serve, kwargs={"until_end": True})
        serving.start()
        serving.join(0.2)  # several rounds of its loop
        assert serving.is_alive()
        received = 0
        while received <= len(contents.html):
            received += len(reader.recv(1 << 20))
        serving.join(60.0)
        assert not serving.is_alive()
