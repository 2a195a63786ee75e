"""MessageWorker: how long each master takes is counted for itself."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from unisono.comm.base import Request
from unisono.strategies.asynchronous.messages import message_worker
from unisono.strategies.asynchronous.messages.message_worker import MessageWorker


class Answer(Request):
    """Is there when it was asked for so often; `wait` makes it come."""

    def __init__(self, after: int) -> None:
        self.after = after

    def test(self) -> bool:
        self.after -= 1
        return self.after < 0

    def wait(self) -> None:
        self.after = 0


def waits(monkeypatch: Any, after: Sequence[int], polled_s: float) -> list[float]:
    clock = itertools.count(1)
    monkeypatch.setattr(message_worker.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(message_worker, "POLLED_S", polled_s)
    worker = MessageWorker.__new__(MessageWorker)
    worker.waits_s = [0.0] * len(after)
    worker._hear([Answer(count) for count in after], begun=0.0)
    return worker.waits_s


@pytest.mark.parametrize("after", [(0, 0, 5), (5, 0, 3), (2, 1, 0)])
def test_a_master_that_answers_first_is_not_charged_with_the_others(monkeypatch, after):
    found = waits(monkeypatch, after, polled_s=20.0)
    assert sorted(range(3), key=lambda master: found[master]) == sorted(range(3), key=lambda master: after[master])


def test_an_answer_that_takes_long_is_waited_for_in_the_wire(monkeypatch):
    first, second = waits(monkeypatch, (10**9, 0), polled_s=0.0)
    assert 0.0 < second < first
