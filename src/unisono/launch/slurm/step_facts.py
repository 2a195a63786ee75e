"""A supervisor on each node, started by SLURM: one task a node, which starts the ranks of its node itself.

    srun -N 2 --ntasks-per-node=1 -c 4 unisono train --ranks-per-node 4

The one idea: SLURM says who is where, which is all that `--num-nodes`, `--node-id` and `--main-address` say by hand.

Limits: without MASTER_ADDR and MASTER_PORT the first node of the step is found by its name in SLURM's list, and a port
is made of the job's and the step's number; --main-port 29500, the default, cannot be told from none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from unisono.environment.main_address import first_host, job_port
from unisono.environment.os_environ import launcher_text
from unisono.environment.process_rank import Placement
from unisono.errors import UserError
from unisono.launch.machine_options import DEFAULT_PORT, MachineOptions

SOURCES = ("SLURM", "PMI", "PMIx")
_NAMES = (
    "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_CPUS_PER_TASK",
)  # fmt: skip


@final
@dataclass(frozen=True)
class StepFacts:
    """What SLURM says of the step that this process is a task of, besides its place in it."""

    cores: int | None
    """Of this task; None: not said."""
    main_host: str
    """The first node, or MASTER_ADDR."""
    main_port: int


def step_facts(environ: Mapping[str, str] | None = None) -> StepFacts:
    """As the environment tells them."""
    facts = launcher_text(*_NAMES, environ=environ)
    host = facts.get("MASTER_ADDR") or first_host(facts)
    numbers = {name: int(value) for name, value in facts.items() if value.strip().isdecimal()}
    port = numbers.get("MASTER_PORT", job_port(facts))
    return StepFacts(numbers.get("SLURM_CPUS_PER_TASK"), host, port)


def as_supervisor(
    options: MachineOptions, placement: Placement, facts: StepFacts, threads: int
) -> MachineOptions | None:
    """What this task of SLURM's is told by hand elsewhere; None: it is no supervisor, but a rank."""
    if not options.ranks_per_node or placement.source not in SOURCES:
        return None
    tasks, nodes = placement.size, placement.nodes
    if placement.local_size != 1 or nodes != tasks or placement.node is None:
        raise UserError(
            f"--ranks-per-node {options.ranks_per_node}, but SLURM started {tasks} tasks on {nodes or 'some'} nodes",
            hint="one task a node starts them: srun --ntasks-per-node=1; or leave --ranks-per-node out, and every task "
            "is a rank",
        )
    needed = options.ranks_per_node * threads
    if facts.cores is not None and needed > facts.cores:
        raise UserError(
            f"--ranks-per-node {options.ranks_per_node} with --threads {threads} needs {needed} cores, and SLURM gave "
            f"this task {facts.cores}",
            hint=f"ask SLURM for more, -c {needed}, or give fewer ranks",
        )
    if tasks == 1:
        return options
    return replace(
        options,
        num_nodes=tasks,
        node_id=placement.node,
        main_address=options.main_address or facts.main_host,
        main_port=facts.main_port if options.main_port == DEFAULT_PORT else options.main_port,
    )
