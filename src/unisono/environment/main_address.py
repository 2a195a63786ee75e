"""The address of rank 0, where the launcher does not say it: from the job's nodes and number, without a message.

The one idea: every rank computes the same "host:port" from what mpirun or srun has told all of them.

>>> job_port({"SLURM_JOB_ID": "10017", "SLURM_STEP_ID": "0"}), first_host({"SLURM_STEP_NODELIST": "n[07-09],m3"})
(20017, 'n07')

Limits: rank 0 is taken to be on the first node of the job; another process may have the port. MASTER_ADDR and
MASTER_PORT say otherwise.
"""

import re
from collections.abc import Mapping
from zlib import crc32

from unisono.environment.process_rank import Placement
from unisono.errors import UserError

FIRST_PORT, PORTS = 20000, 10000
TORCH_PORT = 29500
"""What torchrun takes if nothing is said."""
_NAMESPACES = ("PMIX_NAMESPACE", "PMI_JOBID")


def first_host(facts: Mapping[str, str], name: str = "SLURM_STEP_NODELIST") -> str:
    """The first name of SLURM's list of nodes, such as n[01-03,7],m2; empty if there is none."""
    first = re.match(r"([^\[,]+)(?:\[(\d+))?", facts.get(name, ""))
    return first[1] + (first[2] or "") if first else ""


def job_port(facts: Mapping[str, str]) -> int:
    """A port made of the numbers of the job and the step, so that those that share a node do not share it."""
    job, step = (facts.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    number = int(job) if job.isdecimal() else 0
    return FIRST_PORT + (number + (int(step) if step.isdecimal() else 0)) % PORTS


def main_address(facts: Mapping[str, str], placement: Placement) -> str:
    """ "host:port" for the ranks of `placement`, which mpirun or srun has started. facts: their variables."""
    host = facts.get("MASTER_ADDR") or _host(facts, placement)
    if not host:
        raise UserError(
            f"{placement.source} started {placement.size} ranks on several machines, and does not say where rank 0 is",
            hint="set MASTER_ADDR to the name of the first machine: mpirun -x MASTER_ADDR=HOST, or export it; or unset "
            f"the variables of {placement.source}, if they are left over",
        )
    return f"[{host}]:{_port(facts)}" if ":" in host else f"{host}:{_port(facts)}"


def _host(facts: Mapping[str, str], placement: Placement) -> str:
    if placement.local_size == placement.size:
        return "127.0.0.1"
    # mpirun starts its daemons by a step of its own, which leaves the first node out.
    return first_host(facts, "SLURM_JOB_NODELIST" if placement.source == "Open MPI" else "SLURM_STEP_NODELIST")


def _port(facts: Mapping[str, str]) -> int:
    if (given := facts.get("MASTER_PORT", "")).isdecimal():
        return int(given)
    for name in _NAMESPACES:
        if name in facts:
            return FIRST_PORT + crc32(facts[name].encode()) % PORTS
    return job_port(facts) if "SLURM_JOB_ID" in facts else TORCH_PORT
