"""`unisono cancel` ends what is the user's own and unisono's, and nothing else; SLURM is small scripts here."""

import os
from pathlib import Path

import pytest

from support.commands import put_command
from unisono.cli.jobs import cancel, jobs
from unisono.errors import UserError

LINE = (
    "JobId=17 JobName=x UserId={user} JobState=RUNNING Restarts=0 ExitCode=0:0 NodeList=n1 Comment={comment} StdOut=/x"
)
MINE = f"me({os.getuid()})"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A SLURM with one job; the file that scancel writes to."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def put(user: str = MINE, comment: str = "unisono") -> Path:
        line = LINE.format(user=user, comment=comment)
        scripts = {
            "sbatch": "exit 1",
            "scontrol": f"echo '{line}'",
            "scancel": f'echo "$*" > {tmp_path}/ended',
            "squeue": '[ "$1" = --clusters=big ] && echo "17 unisono"',
        }
        for name, body in scripts.items():
            put_command(tmp_path, name, body)
        return tmp_path / "ended"

    return put


@pytest.mark.parametrize(("number", "words"), [("17", "17\n"), ("17@big", "--clusters=big 17\n")])
def test_a_job_of_ones_own_is_ended_on_its_cluster(slurm, number, words, capsys):
    ended = slurm()
    cancel(number)
    assert ended.read_text() == words
    assert capsys.readouterr().out == f"job {number} was asked to end; unisono jobs tells when it has\n"


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"user": "ada(4711)"}, "job 17 is ada's, not yours\nHINT: unisono jobs lists yours"),
        ({"comment": "(null)"}, "job 17 was not submitted by unisono"),
    ],
)
def test_a_job_that_is_not_is_left_alone(slurm, job, told):
    ended = slurm(**job)
    with pytest.raises(UserError) as caught:
        cancel("17")
    assert told in str(caught.value)
    assert not ended.exists()


def test_of_several_jobs_none_is_ended_if_one_is_somebody_elses(slurm, tmp_path):
    ended = slurm()
    mine, theirs = (LINE.format(user=user, comment="unisono") for user in (MINE, "ada(4711)"))
    put_command(tmp_path, "scontrol", f'[ "${{@: -1}}" = 18 ] && echo "{theirs}" || echo "{mine}"')
    with pytest.raises(UserError, match="job 18 is ada's, not yours"):
        cancel("17", "18")
    assert not ended.exists()


@pytest.mark.parametrize("number", ["mine", "17@", "@big", "1_2_3"])
def test_what_is_no_number(number):
    with pytest.raises(UserError, match="is no number of a job"):
        cancel(number)


def test_jobs_of_another_cluster_are_listed_with_it(slurm, capsys):
    slurm()
    jobs(clusters="big")
    assert "17@big" in capsys.readouterr().out
