"""Runs of a study as SLURM jobs, through what SLURM says of them; with a real one: tests/cluster."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from unisono.cli.common.study_jobs import JobChoices, SlurmRunner, Waiting, runner_of
from unisono.errors import UserError
from unisono.launch.slurm import client, job_monitor
from unisono.launch.slurm.client import Job, NoSuchJob
from unisono.launch.slurm.options import JobOptions
from unisono.recipe import Recipe
from unisono.study.cells import Cell

JOB = Job("17", "x", "PENDING", "Resources", 0, 0, "", "", "", "", True)
RUNNING, DONE = replace(JOB, state="RUNNING", nodes="n[1-2]"), replace(JOB, state="COMPLETED")
CELL = Cell({"grid": "2x1"}, Recipe.from_options(ranks=2), 2)
FINISHED = {"status": "finished", "samples_per_s": 1.0}


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """Answers with one state after the other, the last one for ever; what it was asked for."""

    class Cluster:
        def __init__(self) -> None:
            self.states: list[Job | UserError] = []
            self.asked: list[str] = []

        (tmp_path / "study").mkdir(exist_ok=True)
        run = tmp_path / "study" / "runs" / "cell-0"
        recipe = tmp_path / "study" / "cells" / "cell.toml"

        def carry_out(self, timeout_s: float = 60.0, **waiting: float) -> dict:
            runner = SlurmRunner(JobOptions(mem="1G", launcher="torchrun", venv="/v"), Waiting(poll_s=0.001, **waiting))
            return runner(CELL, self.recipe, self.run, timeout_s, lambda line: self.asked.append(f"line {line}"))

        def leave(self, kind: str, text: str) -> None:
            path = self.run.parents[1] / "jobs" / f"cell-0.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        def finish(self) -> None:
            self.run.mkdir(parents=True)
            (self.run / "summary.json").write_text(json.dumps(FINISHED))

    made = Cluster()

    def jobs_of(number: str) -> list[Job]:
        assert number == "17"
        found = made.states.pop(0) if len(made.states) > 1 else made.states[0]
        if isinstance(found, UserError):
            raise found
        return [found]

    def submit(script: Path) -> str:
        made.asked.append(f"submit {script.name}")
        return "17"

    monkeypatch.setattr(job_monitor, "jobs_of", jobs_of)
    monkeypatch.setattr(client, "submit", submit)
    monkeypatch.setattr(client, "cancel", lambda number: made.asked.append(f"cancel {number}"))
    monkeypatch.setattr("unisono.cli.common.submission.Submission.check_cluster", lambda self: None)
    return made


def test_a_job_is_submitted_waited_for_and_its_run_read(cluster):
    cluster.states = [JOB, RUNNING, DONE]
    cluster.finish()
    record = cluster.carry_out()
    assert (record["status"], record["job"], record["summary"]) == ("finished", "17", FINISHED)
    assert cluster.asked == ["submit cell-0.sbatch"]
    text = (cluster.run.parents[1] / "jobs" / "cell-0.sbatch").read_text()
    assert "#SBATCH --nodes=2\n" in text
    assert "--nproc-per-node=1" in text
    assert f"train {cluster.recipe} --ranks 2 " in text
    assert f'run="{cluster.run}"' in text
    assert "#SBATCH --no-requeue\n" in text


def test_a_percent_sign_in_a_studys_name_is_none_of_slurms(cluster, tmp_path):
    study = tmp_path / "half %j"
    study.mkdir()
    cluster.run, cluster.recipe = study / "runs" / "cell-0", study / "cells" / "cell.toml"
    cluster.states = [DONE]
    cluster.finish()
    assert cluster.carry_out()["status"] == "finished"
    text = (study / "jobs" / "cell-0.sbatch").read_text()
    assert f'--output="{study.parent}/half %%j/jobs/cell-0.out"\n' in text
    assert f'--error="{study.parent}/half %%j/jobs/cell-0.err"\n' in text


def test_a_job_that_fails_is_a_record_with_its_words(cluster, monkeypatch):
    cluster.states = [replace(JOB, state="FAILED", exit_code=2)]
    monkeypatch.setattr(
        client, "submit", lambda script: cluster.leave("err", "unisono: no such data\nHINT: x\n") or "17"
    )
    record = cluster.carry_out()
    assert (record["status"], record["exit_code"], record["reason"]) == ("failed", 2, "no such data")


@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED"])
def test_what_slurm_did_to_a_job_is_the_reason(cluster, state):
    cluster.states = [RUNNING, replace(RUNNING, state=state)]
    record = cluster.carry_out()
    assert record["status"] == "failed"
    assert record["reason"].startswith(f"job 17: {state} (exit code 1)")


@pytest.mark.parametrize(
    ("state", "limit", "reason"),
    [
        (RUNNING, "timeout_s", "it took longer than 1e-09 s (--timeout-s) and was ended"),
        (JOB, "queue_timeout_s", "had not started after 1e-09 s (--queue-timeout-s): Resources"),
    ],
)
def test_a_job_that_takes_too_long_or_never_starts_is_cancelled(cluster, state, limit, reason):
    cluster.states = [state, state, state, replace(JOB, state="CANCELLED")]
    record = cluster.carry_out(**{limit: 1e-9})
    assert cluster.asked[-1] == "cancel 17"
    assert reason in record["reason"]


def test_a_study_that_was_interrupted_goes_on_with_its_job(cluster):
    runner = SlurmRunner(JobOptions(), Waiting(poll_s=0.001))
    assert not runner.pending(cluster.run)
    cluster.leave("job", "17\n")
    cluster.leave("out", "epoch 1/2\n")
    cluster.states = [RUNNING]
    assert runner.pending(cluster.run)
    cluster.states = [RUNNING, DONE]
    cluster.finish()
    assert cluster.carry_out()["status"] == "finished"
    assert cluster.asked == ["line epoch 1/2"], "nothing was submitted again"
    assert not runner.pending(cluster.run)


def test_a_slurm_that_does_not_answer_ends_the_study_and_is_no_record(cluster, monkeypatch):
    def submit(script):
        raise client.NoAnswer("sbatch: Unable to contact slurm controller")

    monkeypatch.setattr(client, "submit", submit)
    with pytest.raises(client.NoAnswer, match=r"what was finished is kept\nHINT: .*the same command goes on") as caught:
        cluster.carry_out()
    assert str(caught.value).startswith("SLURM does not answer here: sbatch: Unable to contact slurm controller; the")
    assert not SlurmRunner(JobOptions(), Waiting()).pending(cluster.run)


def test_a_job_of_which_slurm_refuses_to_tell_is_not_taken_for_one_that_has_ended(cluster):
    cluster.states = [RUNNING, UserError("scontrol refused: Access denied")]
    record = cluster.carry_out()
    assert (record["status"], record["reason"]) == ("failed", "scontrol refused: Access denied")
    cluster.states = [RUNNING]
    assert SlurmRunner(JobOptions(), Waiting()).pending(cluster.run), "another try goes on with it"


@pytest.mark.parametrize("finished", [True, False])
def test_a_job_that_slurm_has_forgotten(cluster, finished):
    """Its run directory knows more."""
    cluster.leave("job", "17\n")
    cluster.states = [NoSuchJob("SLURM knows no job 17")]
    if finished:
        cluster.finish()
    assert SlurmRunner(JobOptions(), Waiting()).pending(cluster.run) == finished
    record = cluster.carry_out()
    assert record["status"] == ("finished" if finished else "failed")


def test_what_is_asked_for(monkeypatch):
    assert runner_of(JobChoices(), Waiting()) is None
    with pytest.raises(UserError, match="--partition without --slurm"):
        runner_of(JobChoices(partition="main"), Waiting())
    monkeypatch.setattr(client, "available", lambda: False)
    with pytest.raises(UserError, match="--slurm, but there is no SLURM on this machine"):
        runner_of(JobChoices(slurm=True), Waiting())
    with pytest.raises(UserError, match="--poll-s is 0"):
        Waiting(poll_s=0)


def test_a_full_disk_ends_the_study_before_a_job_is_submitted(cluster, monkeypatch):
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(UserError, match=r"cell.toml cannot be written: No space left on device"):
            cluster.carry_out()
    assert cluster.asked == []
