"""What tests of the user's own loop have in common."""

from collections.abc import Callable

import pytest

from unisono.storage.background_writer import ThreadWriter


@pytest.fixture
def patient(monkeypatch) -> None:
    """The loop waits for every snapshot: it would be over while the first one is being written."""
    real = ThreadWriter.start

    def start(writer: ThreadWriter, work: Callable[[], str]) -> None:
        real(writer, work)
        writer._thread.join()

    monkeypatch.setattr(ThreadWriter, "start", start)
