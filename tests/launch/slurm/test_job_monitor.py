"""Following a job through what SLURM says of it, one answer after the other."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from unisono.errors import UserError
from unisono.launch.slurm import job_monitor
from unisono.launch.slurm.client import Job, NoAnswer
from unisono.launch.slurm.job_monitor import Output, exit_code, follow

JOB = Job("17", "x", "PENDING", "Resources", 0, 0, "", "", "", "", True)


@pytest.fixture
def slurm(monkeypatch):
    """Says what is told to it, a list of jobs or an error at a time; what is said beside."""
    answers, beside = [], []

    def ask(number: str) -> list[Job]:
        assert number == "17"
        answer, action = answers.pop(0)
        action()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(job_monitor, "jobs_of", ask)

    def tell(*given) -> tuple[int, list[str], list[str]]:
        answers.extend(one if isinstance(one, tuple) else (one, lambda: None) for one in given)
        shown: list[str] = []
        code = follow("17", shown.append, beside.append, poll_s=0.001)
        assert answers == []
        return code, shown, beside

    return tell


def test_states_and_output_as_they_come(slurm, tmp_path: Path):
    out = tmp_path / "17.out"
    running = replace(JOB, state="RUNNING", nodes="n1", output=str(out))
    code, shown, said = slurm(
        [JOB],
        [JOB],
        ([running], lambda: out.write_bytes(b"one\nhalf of t")),
        ([running], lambda: out.write_bytes(b"one\nhalf of two\n\xff")),
        [replace(running, state="COMPLETING")],
        [replace(running, state="PENDING", nodes="", reason="BeginTime", restarts=1)],
        [replace(running, restarts=1)],
        ([replace(running, state="COMPLETED")], lambda: out.write_bytes(b"one\nhalf of two\n\xffthree\nend")),
    )
    assert code == 0
    assert shown == ["one", "half of two", "\N{REPLACEMENT CHARACTER}three", "end"]
    assert said == [
        "job 17: PENDING (Resources)",
        "job 17: RUNNING on n1",
        "job 17: COMPLETING on n1",
        "job 17: PENDING (BeginTime), restart 1",
        "job 17: RUNNING on n1, restart 1",
        "job 17: COMPLETED",
    ]


def test_of_an_array_every_task_and_the_largest_exit_code(slurm, tmp_path: Path):
    tasks = [replace(JOB, number=f"17_{n}", state="COMPLETED", output=str(tmp_path / str(n))) for n in (0, 1)]
    (tmp_path / "1").write_text("hello\n")
    code, shown, _ = slurm([tasks[0], replace(tasks[1], state="FAILED", exit_code=3)])
    assert (code, shown) == (3, ["17_1: hello"])


def test_a_task_that_failed_counts_also_when_slurm_has_forgotten_it(slurm):
    waiting = replace(JOB, number="17_1-2")
    first, second, third = (replace(JOB, number=f"17_{n}", state="RUNNING", nodes="n1") for n in range(3))
    failed, done = replace(first, state="FAILED", exit_code=4), {"state": "COMPLETED"}
    code, _, _ = slurm(
        [first, waiting], [failed, second, third], [second, third], [replace(second, **done), replace(third, **done)]
    )
    assert code == 4


@pytest.mark.parametrize(
    ("state", "code", "expected"), [("COMPLETED", 0, 0), ("FAILED", 75, 75), ("TIMEOUT", 0, 1), ("CANCELLED", 143, 143)]
)
def test_a_job_that_did_not_complete_never_gives_0(state, code, expected):
    assert exit_code(replace(JOB, state=state, exit_code=code)) == expected


def test_memory_and_time_are_named(slurm):
    for state, option in (("OUT_OF_MEMORY", "--mem"), ("TIMEOUT", "--time")):
        _, _, said = slurm([replace(JOB, state=state, exit_code=1)])
        assert f"larger {option}" in said[-1]


def test_a_controller_that_is_away_for_a_while_is_asked_again(slurm):
    code, _, said = slurm(NoAnswer("away"), NoAnswer("away"), [replace(JOB, state="COMPLETED")])
    assert code == 0
    assert said == ["SLURM does not answer, asking again: away", "job 17: COMPLETED"]


def test_one_that_stays_away_is_left(slurm, monkeypatch):
    monkeypatch.setattr(job_monitor, "MOST_FAILURES", 2)
    with pytest.raises(NoAnswer, match="job 17 may go on") as caught:  # by which a study knows that no run is to blame
        slurm(NoAnswer("away"), NoAnswer("away"))
    assert caught.value.reason == "away"


def test_a_job_that_is_forgotten_is_an_error(slurm):
    with pytest.raises(UserError, match="forgotten"):
        slurm(UserError("forgotten"))


def test_an_output_that_is_no_file_is_not_waited_for_and_a_long_one_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(job_monitor, "_MOST_BYTES", 7)
    os.mkfifo(tmp_path / "pipe")
    shown: list[str] = []
    Output(tmp_path / "pipe").show_new(shown.append, last=True)
    assert shown == []
    (tmp_path / "out").write_bytes(b"one\ntwo\nthree, which is longer\nlast")
    Output(tmp_path / "out").show_new(shown.append, last=True)
    assert shown[:2] == ["one", "two"]
    assert "".join(shown) == "onetwothree, which is longerlast"
