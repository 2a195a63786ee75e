"""Who gets the page, and who does not."""

import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from made_run import make
from serving import join_requests, served

from unisono.errors import UserError
from unisono.report.live import server as serving_module
from unisono.report.live.server import LiveServer


@pytest.fixture
def server(tmp_path) -> Iterator[LiveServer]:
    with served([make(tmp_path / "run")]) as found:
        yield found


def ask(server: LiveServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
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
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/wrong/",
        "/wrong/content",
        "/favicon.ico",
        "//",
        "/%00/",
        "/" + "x" * 3000,
        "//[",
    ],
)
def test_anybody_else_gets_403(server, path):
    status, text, _ = ask(server, path)
    assert status == 403
    assert "HINT" in text
    assert "Verdict" not in text
    assert server.token not in text


def test_a_prefix_of_the_token_is_not_enough(server):
    assert ask(server, f"/{server.token[:-1]}/")[0] == 403
    assert ask(server, f"/{server.token}x/")[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", ""])
def test_a_name_that_was_made_to_lead_here_is_refused(server, host):
    assert ask(server, f"/{server.token}/", Host=host)[0] == 403
    assert ask(server, f"/{server.token}/", Host="localhost:1234")[0] == 200


def test_nothing_else_lies_under_the_token(server):
    for path in ("recipe.toml", "../recipe.toml", "content/more", "..%2f..%2fetc%2fpasswd"):
        assert ask(server, f"/{server.token}/{path}")[0] == 404
    assert ask(server, f"/{server.token}")[0] == 404


def test_there_is_nothing_that_a_reader_could_change(server):
    assert ask(server, f"/{server.token}/", "POST")[0] == 501
    status, text, _ = ask(server, f"/{server.token}/", "HEAD")
    assert (status, text) == (200, "")


def test_a_page_that_is_asked_for_again_is_not_made_again(server, monkeypatch):
    made = []
    monkeypatch.setattr("unisono.report.live.following.document", lambda runs, live: made.append(runs) or "a page")
    monkeypatch.setattr("unisono.report.live.following.PAUSE_S", 600.0)
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
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_or_none(tmp_path):
    run = make(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="Address already in use"):
        LiveServer([run], taken.getsockname()[1])
    with pytest.raises(UserError, match="no such port"):
        LiveServer([run], 70000)


def test_until_the_end_leaves_at_once_if_nobody_looks(tmp_path):
    with LiveServer([make(tmp_path / "run")]) as server:
        server.serve(until_end=True)


def test_until_the_end_lets_a_reader_see_the_end(tmp_path, monkeypatch):
    """A reader who has seen an earlier version is waited for until it has fetched the last."""
    monkeypatch.setattr(serving_module, "AWAY_S", 60.0)
    monkeypatch.setattr(serving_module, "GRACE_S", 60.0)
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
    join_requests()


@pytest.mark.parametrize("away_s", [60.0, 0.0], ids=["quick", "longer than readers are waited for"])
def test_until_the_end_waits_while_the_last_answer_is_on_its_way(tmp_path, monkeypatch, away_s):
    """The end of the process ends the threads that answer: an answer counts when it has been sent."""
    monkeypatch.setattr(serving_module, "AWAY_S", 60.0)
    monkeypatch.setattr(serving_module, "GRACE_S", 60.0)
    begun, go_on = threading.Event(), threading.Event()
    send = serving_module._Handler._send

    def slowly(handler, *arguments):
        begun.set()
        assert go_on.wait(30.0)
        send(handler, *arguments)

    run = make(tmp_path / "run")
    with LiveServer([run]) as server:
        server.seen, server.asked = "an earlier version", time.monotonic()  # somebody is there
        monkeypatch.setattr(serving_module._Handler, "_send", slowly)
        serving = threading.Thread(target=server.serve, kwargs={"until_end": True})
        reading = threading.Thread(target=ask, args=(server, f"/{server.token}/content"))
        serving.start()
        reading.start()
        assert begun.wait(30.0)
        monkeypatch.setattr(serving_module, "AWAY_S", away_s)
        serving.join(1.0)  # several rounds of its loop
        assert serving.is_alive()
        go_on.set()
        serving.join(30.0)
        assert not serving.is_alive()
        reading.join(30.0)
    join_requests()
