"""Writers: both kinds do one thing aside, tell once what came of it, and leave nothing."""

import os
from collections.abc import Iterator

import pytest

from unisono.errors import UserError
from unisono.storage.background_writer import Answer, ProcessWriter, ThreadWriter, Writer


@pytest.fixture(params=[ProcessWriter, ThreadWriter])
def writer(request) -> Iterator[Writer]:
    made = request.param()
    yield made
    made.close()


def answer(writer: Writer) -> Answer:
    while writer.busy:
        if (found := writer.ended(10.0)) is not None:
            return found
    raise AssertionError("it said nothing")


def test_what_comes_of_it_is_told_once(writer):
    assert not writer.busy
    for text in ("first", "second"):
        writer.start(lambda text=text: text)
        assert writer.busy
        assert answer(writer) == Answer(text)
        assert not writer.busy


def test_it_works_aside(writer):
    """While it waits for us, we are free to go on."""
    reader, sink = os.pipe()
    writer.start(lambda: os.read(reader, 1).decode())
    assert writer.ended(0.0) is None
    assert writer.busy
    os.write(sink, b"x")
    assert answer(writer) == Answer("x")
    os.close(reader)
    os.close(sink)


def test_a_failure_is_told(writer):
    def fail() -> str:
        raise UserError("no room", hint="make some")

    writer.start(fail)
    found = answer(writer)
    assert found.path is None
    assert "no room\nHINT: make some" in found.cause
    writer.start(lambda: str(1 / 0))
    assert "ZeroDivisionError" in answer(writer).cause


def test_one_that_is_dropped_is_gone_or_cannot_be(writer):
    reader, sink = os.pipe()
    writer.start(lambda: os.read(reader, 1).decode())
    if not writer.drop():  # a thread: it still holds what it holds
        assert writer.busy
        os.write(sink, b"x")
        assert answer(writer) == Answer("x")
    else:
        assert answer(writer).cause == "its writer was killed by SIGKILL"
    writer.start(lambda: "the next")
    assert answer(writer) == Answer("the next")
    os.close(reader)
    os.close(sink)
