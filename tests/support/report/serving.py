"""A live page that is served by a thread of the test's, and of which nothing is left."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from unisono.report.live.http_server import HttpServer
from unisono.report.live.page_server import LiveServer


@contextmanager
def served(paths: Sequence[Path]) -> Iterator[LiveServer]:
    with LiveServer(paths) as server, stepping(server):
        yield server


@contextmanager
def stepping(server: LiveServer | HttpServer) -> Iterator[threading.Thread]:
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            server.step(0.01)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield thread
    finally:
        over.set()
        thread.join(60.0)
