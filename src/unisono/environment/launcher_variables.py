"""Launchers: what torchrun, mpirun or srun say about a process, read from the variables that they set.

One idea: an environment is a row of variable names, innermost launcher first; how ranks are read, checked and refused
is written once. Pure: `variables.detect` hands it the variables of this process.

>>> placement_of({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, terminal=lambda: False).rank
1

The rules, each seen in real environments:
- The first row that is given wins: mpirun inside a SLURM job starts its daemons by srun, so its ranks also carry the
  variables of a step, that of the daemons. `accelerate launch` sets torchrun's variables.
- SLURM counts only inside a step. sbatch's script has SLURM_PROCID=0 and SLURM_NTASKS=4 but is one process; a script
  submitted from within a step even inherits that step's variables, and is told by having one task in SLURM_GTIDS.
- A job that SLURM queued again tells how often in SLURM_RESTART_COUNT, to its script and to its steps alike.
- A shell of `srun -n4 --pty bash` is one process: SLURM_PTY_PORT is set, the job is named like a shell, and there is a
  terminal. The name alone means nothing: `salloc` and then `srun -n4`, or `srun -n4 bash -c ...`, have it as well.
- PMI and PMIx variables are srun's if stamped JOB.STEP and without MPI_LOCALRANKID, which MPICH's mpiexec sets. Stamped
  with this step they must agree with SLURM; stamped with another they are left over, and ignored.
- `accelerate launch --cpu --num_processes 4` starts one process and says nothing; that it was told of more shows in
  MASTER_ADDR, which it sets only then.
- Fewer torchruns in the world than the launcher around them started means several worlds. More is no contradiction:
  the others may come from other steps.

Limits: components of a heterogeneous SLURM job are not told apart; hydra's port mode (PMI_PORT, PMI_ID) is not read.
A script submitted from within a step of several nodes with one task each passes for a rank of that step.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from unisono.environment.process_rank import Placement
from unisono.errors import Contradiction, UserError


@dataclass(frozen=True)
class Environment:
    """The variables of one launcher; an empty name: it does not say.

    `stamp` names a SLURM step, JOB.STEP, when srun set this row's variables.
    """

    source: str
    rank: str
    size: str = ""
    local_rank: str = ""
    local_size: str = ""
    node: str = ""
    nodes: str = ""
    stamp: str = ""
    restarts: str = ""


TORCHRUN = Environment(
    "torchrun",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    restarts="TORCHELASTIC_RESTART_COUNT",
)
OPEN_MPI = Environment(
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
PMI = Environment("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", stamp="PMI_JOBID")
PMIX = Environment("PMIx", "PMIX_RANK", stamp="PMIX_NAMESPACE")
SLURM = Environment(
    "SLURM",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NODEID",
    "SLURM_STEP_NUM_NODES",
)
ENVIRONMENTS = (TORCHRUN, OPEN_MPI, PMI, PMIX, SLURM)

REQUEUES = "SLURM_RESTART_COUNT"
SHELLS = frozenset({"bash", "sh", "zsh", "fish", "csh", "tcsh", "ksh", "dash", "interactive"})
SPECIAL_STEPS = 4294967280
"""From here on SLURM numbers what is no step of ranks: the batch script, the shell of salloc."""


def placement_of(facts: Mapping[str, str], terminal: Callable[[], bool]) -> Placement:
    """Who a process with these variables is. `terminal`: whether a person's terminal controls it."""
    requeues = (_whole(facts, REQUEUES) or 0) if "SLURM_JOB_ID" in facts else 0
    if not _in_step(facts, terminal):
        facts = {name: value for name, value in facts.items() if not name.startswith("SLURM_")}
    said = ((row, _read(row, facts)) for row in ENVIRONMENTS)
    found = ((row, placement) for row, placement in said if placement is not None)
    row, placement = next(found, (None, Placement.alone()))
    placement = replace(placement, restarts=placement.restarts + requeues)
    if row is TORCHRUN and (around := next(found, None)):
        _check_agents(placement, *around)
    if row is None:
        _check_accelerate(facts)
    return placement


def _in_step(facts: Mapping[str, str], terminal: Callable[[], bool]) -> bool:
    step = facts.get("SLURM_STEP_ID", "")
    if not step.isdecimal() or int(step) >= SPECIAL_STEPS:
        return False
    shell = facts.get("SLURM_JOB_NAME") in SHELLS and "SLURM_PTY_PORT" in facts and facts.get(SLURM.size) != "1"
    # An srun inside that shell inherits SLURM_PTY_PORT, but not the terminal.
    if shell and terminal():
        return False
    tasks_here = _local_size(facts, SLURM.local_size, _whole(facts, SLURM.node))
    return tasks_here is None or "SLURM_GTIDS" not in facts or len(facts["SLURM_GTIDS"].split(",")) == tasks_here


def _read(row: Environment, facts: Mapping[str, str]) -> Placement | None:
    """What one launcher says; None if it says nothing."""
    if row.rank not in facts and row.size not in facts:
        return None
    if row.local_rank not in facts and (stamp := re.search(r"(?:^|^slurm\..*\.)(\d+\.\d+)$", facts.get(row.stamp, ""))):
        return _read_step(row, facts, stamp[1])
    rank, size = _whole(facts, row.rank), _whole(facts, row.size)
    if rank is None or size is None:
        there = row.size if rank is None else row.rank
        missing = row.rank if rank is None else row.size or "the number of ranks"
        raise UserError(
            f"the environment of {row.source} is incomplete: {there}={facts[there]} is set, {missing} is not",
            hint=f"start with torchrun, mpirun or srun, which set both; or set {missing} too; or `unset {there}`",
        )
    node, nodes = _whole(facts, row.node), _whole(facts, row.nodes)
    local_rank, local_size = _whole(facts, row.local_rank), _local_size(facts, row.local_size, node)
    pairs = (
        (row.rank, rank, row.size, size),
        (row.local_rank, local_rank, row.local_size, local_size),
        (row.node, node, row.nodes, nodes),
    )
    for name, index, limit, count in pairs:
        if index is not None and count is not None and index >= count:
            raise UserError(
                f"{name}={index} is not below the {count} of {limit}={facts[limit]}",
                hint=f"ranks and nodes count from 0; let {row.source} set these variables, or unset them",
            )
    restarts = _whole(facts, row.restarts) or 0
    return Placement(rank, size, local_rank, local_size, node, nodes, _address(facts), row.source, restarts)


def _check_agents(inner: Placement, around: Environment, outer: Placement) -> None:
    if inner.nodes is not None and inner.nodes < outer.size:
        raise Contradiction(
            f"{outer.source} started {outer.size} torchruns ({around.size or SLURM.size}={outer.size}), but each is in "
            f"a world of {inner.nodes} ({TORCHRUN.nodes}={inner.nodes})",
            hint=f"give torchrun --nnodes={outer.size} --rdzv-backend=c10d and the same --rdzv-endpoint=HOST:PORT, or "
            "start torchrun once",
        )


def _check_accelerate(facts: Mapping[str, str]) -> None:
    """Nobody says that this process is a rank, but Accelerate was told of several: only then it gives an address."""
    if any(name.startswith("ACCELERATE_") for name in facts) and "MASTER_ADDR" in facts:
        raise Contradiction(
            f"accelerate launch was told of several processes (MASTER_ADDR={facts['MASTER_ADDR']}), but started this "
            "one alone, as it does on CPUs without a word",
            hint="ACCELERATE_USE_CPU=true accelerate launch --multi_gpu --num_processes 4 ... -m unisono train, "
            "without --cpu; or mpirun -n 4 unisono train; or unset MASTER_ADDR",
        )


def _read_step(row: Environment, facts: Mapping[str, str], stamp: str) -> Placement | None:
    """PMI or PMIx by srun: the step's own placement, provided both say the same."""
    if stamp != f"{facts.get('SLURM_JOB_ID')}.{facts.get('SLURM_STEP_ID')}":
        return None
    step = _read(SLURM, facts)
    for ours, theirs in ((row.rank, SLURM.rank), (row.size, SLURM.size)):
        if ours in facts and _whole(facts, ours) != _whole(facts, theirs):
            raise Contradiction(
                f"{ours}={facts[ours]}, but {theirs}={facts.get(theirs)}: {row.source} and SLURM disagree on one step",
                hint="let srun set both: Open MPI needs `srun --mpi=pmix`, MPICH needs `srun --mpi=pmi2`; and export "
                f"neither {ours} nor {theirs} yourself",
            )
    return step and replace(step, source=row.source)


def _whole(facts: Mapping[str, str], name: str) -> int | None:
    value = facts.get(name)
    if value is None or value.isdecimal():
        return None if value is None else int(value)
    raise UserError(
        f"{name}={value} is not a whole number of 0 or more", hint=f"let the launcher set {name}, or unset it"
    )


def _local_size(facts: Mapping[str, str], name: str, node: int | None) -> int | None:
    """A number; SLURM gives a list of tasks per node such as 2(x3),1 instead, taken at `node`."""
    if name != SLURM.local_size:
        return _whole(facts, name)
    if name not in facts or node is None:
        return None
    for part in facts[name].split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise UserError(
                f"{name}={facts[name]} is not a list such as 2(x3),1", hint=f"let srun set {name}, or unset it"
            )
        node -= int(match[2] or 1)
        if node < 0:
            return int(match[1])
    return None


def _address(facts: Mapping[str, str]) -> str | None:
    host, port = facts.get("MASTER_ADDR"), _whole(facts, "MASTER_PORT")
    if host is None or port is None:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
