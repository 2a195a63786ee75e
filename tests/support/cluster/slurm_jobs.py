"""What tests of jobs share: `unisono` on the login node, waiting for what a job prints or becomes, its results."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from support.cluster.slurm_cluster import LOOK_S, SlurmCluster
from unisono.environment.os_environ import mpi_environment
from unisono.launch.launcher_commands import find_program

DEADLINE_S = 100.0
QUICK = ["--poll-s", "0.2"]


@dataclass(frozen=True)
class Desk:
    """A user in a directory on the login node."""

    slurm: SlurmCluster
    place: Path

    def unisono(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        done = self.slurm.call([sys.executable, "-m", "unisono", *arguments], cwd=self.place)
        return done.returncode, done.stdout, done.stderr

    def submit(self, *arguments: str) -> str:
        """The job's number."""
        code, out, err = self.unisono("submit", *arguments)
        assert code == 0, err
        return out.split("Submitted: job ")[1].split()[0]

    def output(self, job: str) -> str:
        path = self.place / f"slurm-{job}.out"
        return path.read_text() if path.exists() else ""

    def show(self, job: str, field: str) -> str:
        """What scontrol says of a job."""
        told = self.slurm.call(["scontrol", "--oneliner", "show", "job", job]).stdout
        return f" {told}".split(f" {field}=", 1)[1].split()[0]

    def until(self, reached: Callable[[], bool], *jobs: str) -> None:
        """Waits for a condition; what jobs printed and are, if it does not come."""
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < deadline, "\n".join(
                [self.slurm.call(["squeue", "-t", "all"]).stdout, *map(self.output, jobs)]
            )
            time.sleep(LOOK_S)

    def until_said(self, job: str, words: str, times: int = 1) -> None:
        self.until(lambda: self.output(job).count(words) >= times, job)

    def until_over(self, *jobs: str) -> None:
        for job in jobs:
            self.until(lambda job=job: self.show(job, "JobState") not in ("PENDING", "RUNNING", "COMPLETING"), job)

    def summary(self, run: str) -> dict[str, Any]:
        return json.loads((self.place / run / "summary.json").read_text())

    def epochs(self, run: str) -> list[int]:
        lines = (self.place / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["epoch"] for line in lines]


@cache
def can_start(launcher: str) -> bool:
    """Whether what a launcher's ranks need is installed, and, for MPI, found without its mpirun, too."""
    if find_program("mpirun") is None and launcher in ("srun", "mpirun"):
        return False
    if launcher != "srun":
        package = {"unisono": "numpy", "mpirun": "mpi4py", "torchrun": "torch", "accelerate": "accelerate"}[launcher]
        return find_spec(package) is not None
    code = "from unisono.environment.os_environ import tidy_lone_mpi\nwith tidy_lone_mpi(): from mpi4py import MPI"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=mpi_environment(), capture_output=True, timeout=60, check=False).returncode == 0


def rank_of(job: str, rank: int) -> psutil.Process:
    """The process that srun started as this task of a job."""
    wanted = {"SLURM_JOB_ID": job, "SLURM_PROCID": str(rank), "SLURM_STEP_ID": "0"}
    for process in psutil.Process().children(recursive=True):
        try:
            if "train" in process.cmdline() and wanted.items() <= process.environ().items():
                return process
        except psutil.Error:
            continue  # it ended meanwhile
    raise AssertionError(f"job {job} has no rank {rank}")
