"""How the ranks of a job are started: for each launcher the tasks that it wants of SLURM, and the lines of shell.

The one idea: either every rank is a task of SLURM's (srun, mpirun), or every node has one task that starts its ranks
(unisono, torchrun, accelerate); the rest follows.

    step = make_step("srun", Layout(nodes=2, ranks=2, threads=1), ["r2", "--epochs", "3"], "pmix")
    step.lines    # exec srun --mpi=pmix ... "$python" -m unisono train r2 --epochs 3 --ranks 4 "$@"

Limits: accelerate is started for CPUs; on one node with one rank it starts a plain process, no rank of torch's.
"""

import os
from dataclasses import dataclass
from typing import final

from unisono.launch.slurm.quoting import quote


@final
@dataclass(frozen=True)
class Layout:
    """Where ranks are."""

    nodes: int
    ranks: int
    """On each node."""
    threads: int
    """Of each rank."""

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self.nodes * self.ranks


@final
@dataclass(frozen=True)
class Step:
    """What a launcher needs."""

    tasks_per_node: int
    cpus_per_task: int
    lines: list[str]
    """Of a shell, of which the last becomes the launcher. Arguments of the shell function they stand in go to train."""
    asks: str
    """The shell command that tells all ranks to save a snapshot and end; "$launched" is the launcher's process."""


_CPUS = '--cpus-per-task="$SLURM_CPUS_PER_TASK"'  # since SLURM 22.05 steps do not inherit it
_STAY = "--kill-on-bad-exit=0"  # a cluster may have set 1: those that are left would be killed before they save
_PYTHON = '"$python" '
_PASSED_ON = 'kill -USR1 "$launched"'
_TO_AGENTS = 'scancel --signal=TERM "$job"'
"""Agents of torch end their ranks in order after SIGTERM, and die of SIGUSR1; their srun would take it for itself."""
_AS_ROOT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"


def make_step(launcher: str, layout: Layout, words: list[str], plugin: str, program: str = "mpirun") -> Step:
    """`words`: arguments of `unisono train`; `plugin`: srun's --mpi; `program`: which mpirun."""
    # A task that starts the ranks of its node is told of those; a rank takes part in as many as there are.
    count = ["--ranks-per-node", str(layout.ranks)] if launcher == "unisono" else ["--ranks", str(layout.size)]
    arguments = " ".join(quote("an argument of unisono train", word) for word in [*words, *count])
    train = f'"$python" -m unisono train {arguments} "$@"'
    if launcher in ("srun", "mpirun"):
        if launcher == "srun":
            lines = [f"exec srun --mpi={plugin} {_STAY} {_CPUS} \\", f"    {train}"]
        else:
            root = [_AS_ROOT] if os.geteuid() == 0 else []
            mpirun = quote("the path of mpirun", program)
            lines = [*root, f"exec {mpirun} -n {layout.size} --bind-to none \\", f"    {train}"]
        return Step(layout.ranks, layout.threads, lines, _PASSED_ON)
    srun, cpus = f"exec srun {_STAY} {_CPUS}", layout.ranks * layout.threads
    if launcher == "unisono":
        return Step(1, cpus, [f"{srun} \\", f"    {train}"], _PASSED_ON)
    lines = _torchrun(srun, layout, train) if launcher == "torchrun" else _accelerate(srun, layout, train)
    return Step(1, cpus, lines, _TO_AGENTS)


def _torchrun(srun: str, layout: Layout, train: str) -> list[str]:
    return [
        f"{srun} \\",
        f'    "$python" -m torch.distributed.run --nnodes={layout.nodes} --nproc-per-node={layout.ranks} \\',
        '    --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \\',
        f"    {train.removeprefix(_PYTHON)}",
    ]


def _accelerate(srun: str, layout: Layout, train: str) -> list[str]:
    # With --cpu, or without the variable, accelerate starts separate processes and says nothing.
    several = "--multi_gpu " if layout.size > 1 else ""
    return [
        "export ACCELERATE_USE_CPU=true",
        f"{srun} \\",
        f'    bash -c \'exec "$0" -m accelerate.commands.launch {several}--num_machines={layout.nodes} \\',
        f'    --num_processes={layout.size} --machine_rank="$SLURM_NODEID" --main_process_ip="$MASTER_ADDR" \\',
        '    --main_process_port="$MASTER_PORT" --mixed_precision=no --dynamo_backend=no "$@"\' \\',
        f"    {train}",
    ]
