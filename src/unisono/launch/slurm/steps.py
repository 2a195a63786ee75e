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

from unisono.launch.launcher_commands import imports_safely
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
_PASSED_ON = 'kill -USR1 "$launched"'
_TO_AGENTS = 'scancel --signal=TERM "$job"'
"""Agents of torch end their ranks in order after SIGTERM, and die of SIGUSR1; their srun would take it for itself."""
_AS_ROOT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"


def interpreter() -> str:
    """The job's Python as words of shell, which imports from where this one does: see
    `launch/launcher_commands.py`. By an option, not by a variable: programs of the user's own that a rank starts import
    as they always do."""
    return '"$python" -P' if imports_safely() else '"$python"'


def make_step(launcher: str, layout: Layout, words: list[str], plugin: str, program: str = "mpirun") -> Step:
    """`words`: arguments of `unisono train`; `plugin`: srun's --mpi; `program`: which mpirun."""
    # A task that starts the ranks of its node is told of those; a rank takes part in as many as there are.
    count = ["--ranks-per-node", str(layout.ranks)] if launcher == "unisono" else ["--ranks", str(layout.size)]
    arguments = " ".join(quote("an argument of unisono train", word) for word in [*words, *count])
    unbuffered = " -u" if launcher in ("torchrun", "accelerate") else ""  # as torchrun starts its ranks
    train = f'{interpreter()}{unbuffered} -m unisono train {arguments} "$@"'
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
        f"    {interpreter()} -m torch.distributed.run --nnodes={layout.nodes} --nproc-per-node={layout.ranks} \\",
        '    --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \\',
        f"    --no-python {train}",  # it would not give -P to its ranks' interpreters
    ]


def _accelerate(srun: str, layout: Layout, train: str) -> list[str]:
    # With --cpu, or without the variable, accelerate starts separate processes and says nothing.
    several = "--multi_gpu " if layout.size > 1 else ""
    agent = interpreter().replace("$python", "$0")
    return [
        "export ACCELERATE_USE_CPU=true",
        f"{srun} \\",
        f"    bash -c 'exec {agent} -m accelerate.commands.launch {several}--num_machines={layout.nodes} \\",
        f'    --num_processes={layout.size} --machine_rank="$SLURM_NODEID" --main_process_ip="$MASTER_ADDR" \\',
        '    --main_process_port="$MASTER_PORT" --mixed_precision=no --dynamo_backend=no \\',
        '    --no_python "$0" "$@"\' \\',
        f"    {train}",
    ]
