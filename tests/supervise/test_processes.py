"""Children and what they tell: whole lines only, in order, and what became of each."""

import errno
import os
import selectors
import signal
import sys
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from unisono.errors import RankFailed, UserError
from unisono.supervise.processes import ChildExit, ProcessGroup, run_child


def ends_of(process_group: ProcessGroup) -> list[ChildExit]:
    """When all have ended."""
    ended: list[ChildExit] = []
    while process_group.living:
        ended += process_group.poll(10.0)
    return ended


def gather(*works: Any) -> tuple[dict[int, ChildExit], list[tuple[int, Any]]]:
    """Runs a child for each; how they ended, and what they reported."""
    told: list[tuple[int, Any]] = []
    with closing(ProcessGroup(lambda rank, value: told.append((rank, value)))) as process_group:
        for rank, work in enumerate(works):
            process_group.start(rank, lambda sink, work=work: run_child(work, sink))
        return {one.rank: one for one in ends_of(process_group)}, told


def test_reports_come_in_order_and_before_the_end():
    def work(report):
        for number in range(100):
            report({"number": number, "text": "two\nlines"})
        return "done"

    ended, told = gather(work, work)
    assert [value["number"] for rank, value in told if rank == 1] == list(range(100))
    assert (ended[0].check(), ended[1].check()) == ("done", "done")


def test_a_result_counts_though_its_rank_was_killed_on_its_way_out():
    def body(sink: int) -> int:
        run_child(lambda report: 42, sink)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with closing(ProcessGroup(lambda rank, value: None)) as process_group:
        process_group.start(0, body)
        ended = ends_of(process_group)
    assert os.WTERMSIG(ended[0].status) == signal.SIGKILL
    assert ended[0].check() == 42


def test_a_result_of_many_megabytes():
    ended, _ = gather(lambda report: np.arange(2_000_000.0))
    np.testing.assert_array_equal(ended[0].check(), np.arange(2_000_000.0))


@pytest.mark.parametrize("line", [b'{"epoch": 1}', b'{"__message__": ["Res', b""])
def test_half_a_line_of_one_that_was_killed_is_not_heard(line):
    told: list[Any] = []

    def body(sink: int) -> int:
        os.write(sink, b'"whole"\n' + line)
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with closing(ProcessGroup(lambda rank, value: told.append(value))) as process_group:
        process_group.start(0, body)
        ended = ends_of(process_group)
    assert told == ["whole"]
    assert (ended[0].answered, ended[0].result) == (False, None)
    with pytest.raises(RankFailed, match="rank 0: was killed by SIGKILL"):
        ended[0].check()


def test_a_place_can_be_taken_again():
    told: list[Any] = []
    with closing(ProcessGroup(lambda rank, value: told.append(value))) as process_group:
        for life in range(3):
            process_group.start(0, lambda sink, life=life: run_child(lambda report: report(life), sink))
            ends_of(process_group)
    assert told == [0, 1, 2]


def fail_by_mistake(report):
    raise UserError("--x is 0", hint="give 1")


@pytest.mark.parametrize(
    ("work", "kind", "code", "message"),
    [
        (lambda report: 1 / 0, "ZeroDivisionError", 1, "Traceback"),
        (lambda report: sys.exit(3), "SystemExit", 1, "SystemExit: 3"),
        (fail_by_mistake, "UserError", 2, "--x is 0\nHINT: give 1\n"),
        (lambda report: {1, 2}, "UserError", 2, "cannot be handed back"),
    ],
)
def test_failures(work, kind, code, message):
    ended, _ = gather(work)
    with pytest.raises(RankFailed) as caught:
        ended[0].check()
    assert (caught.value.kind, caught.value.exit_code) == (kind, code)
    assert message in caught.value.report


def test_a_quiet_exit_is_no_answer():
    ended, _ = gather(lambda report: os._exit(0))
    with pytest.raises(RankFailed, match="ended with exit code 0 and gave no result"):
        ended[0].check()


def test_closing_ends_those_who_still_live():
    process_group = ProcessGroup(lambda rank, value: None, grace_s=0.0)
    for rank in range(3):
        process_group.start(rank, lambda sink: signal.pause())
    assert process_group.living == {0, 1, 2}
    pids = [process_group.pid(rank) for rank in range(3)]
    process_group.close()
    assert process_group.living == set()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_kill_is_seen_by_the_next_poll():
    with closing(ProcessGroup(lambda rank, value: None)) as process_group:
        process_group.start(5, lambda sink: signal.pause())
        assert process_group.poll(0.0) == []
        process_group.kill(5)
        (ended,) = ends_of(process_group)
        assert (ended.rank, os.WTERMSIG(ended.status)) == (5, signal.SIGKILL)


@pytest.mark.parametrize(
    ("owner", "name", "succeeds"),
    [(os, "pidfd_open", 0), (selectors.DefaultSelector, "register", 0), (selectors.DefaultSelector, "register", 1)],
)
def test_a_child_that_cannot_be_watched_is_ended(monkeypatch, owner, name, succeeds):
    """Whoever asked for it will ask again: two processes would take themselves for one rank."""
    real, calls, forked = getattr(owner, name), [], []

    def short_of_descriptors(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == succeeds + 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*arguments)

    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forked.append(fork()) or forked[-1])
    monkeypatch.setattr(owner, name, short_of_descriptors)
    with closing(ProcessGroup(lambda rank, value: None)) as process_group:
        with pytest.raises(OSError, match="Too many open files"):
            process_group.start(0, lambda sink: signal.pause())
        assert process_group.living == set()
        with pytest.raises(ProcessLookupError):
            os.kill(forked[0], 0)
        process_group.start(0, lambda sink: run_child(lambda report: "second", sink))
        assert [one.check() for one in ends_of(process_group)] == ["second"]
