"""A live page that is served by a thread of the test's, and of which nothing is left."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from unisono.report.live.server import LiveServer


@contextmanager
def served(paths: Sequence[Path]) -> Iterator[LiveServer]:
    with LiveServer(paths) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    join_requests()


def join_requests() -> None:
    """Threads of requests end by themselves, a moment after their reader has gone."""
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(40.0)
