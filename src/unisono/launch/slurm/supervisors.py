"""A supervisor on each node, started by SLURM: one task a node, which starts the ranks of its node itself.

    srun -N 2 --ntasks-per-node=1 -c 4 unisono train --ranks-per-node 4

The one idea: SLURM says who is where, which is all that `--num-nodes`, `--node-id` and `--main-address` say by hand.

Limits: without MASTER_ADDR and MASTER_PORT the first node of the step is found by its name in SLURM's list, and a port
is made of the job's number.
"""

from dataclasses import replace

from unisono.errors import UserError
from unisono.launch.environments import StepFacts
from unisono.launch.nodes import NodeOptions
from unisono.launch.placement import Placement

SOURCES = ("SLURM", "PMI", "PMIx")


def as_supervisor(options: NodeOptions, placement: Placement, facts: StepFacts, threads: int) -> NodeOptions | None:
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
        main_port=facts.main_port,
    )
