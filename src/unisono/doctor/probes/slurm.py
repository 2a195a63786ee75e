"""SLURM: whether its commands are there, whether the cluster answers, and what job and launcher we are in."""

import shutil

from unisono.doctor.finding import Finding
from unisono.environment.os_environ import detect, launcher_text
from unisono.errors import UnisonoError
from unisono.launch.slurm.command import Answer, run_command

ANSWER_S = 10.0
MOST_LINES, MOST_CHARACTERS = 20, 300
JOB = ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_STEP_ID")


def probe() -> list[Finding]:
    """Not needed on one machine."""
    return [*cluster(), *job()]


def cluster() -> list[Finding]:
    """The commands, and the controller behind them."""
    if shutil.which("sinfo") is None:
        told = "not here; `unisono train` and mpirun do without"
        return [Finding("SLURM", "missing", told, "on a cluster: `module load slurm`, or log in to its login node")]
    try:
        version, partitions, kinds = asked("sinfo", "--version"), asked("sinfo", "-h", "-o", "%P %D %T"), mpi_kinds()
    except OSError as error:
        reason = error.strerror or "no answer"
        told = f"its commands are here, but the cluster does not answer: {reason}"
        return [Finding("SLURM", "warning", told, "is this a login or compute node? `scontrol ping`, slurm.conf")]
    lines = [cut(line) for line in partitions.splitlines()]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more"]
    version = cut(version)
    facts = {"version": version, "partitions": lines, "mpi": kinds}
    found = [Finding("SLURM", "ok", f"{version}; partition, nodes, state: {', '.join(lines) or 'none'}", facts=facts)]
    if not any(kind.startswith("pmix") for kind in kinds):
        told = "srun has no pmix: Open MPI's ranks started by srun would be worlds of one each"
        found.append(Finding("srun --mpi", "warning", told, "start mpirun inside the job, or use MPICH and --mpi=pmi2"))
    return found


def asked(*command: str) -> str:
    """What a command says; an `OSError` if it fails or says nothing for `ANSWER_S`."""
    answer = ran(*command)
    if answer.code:
        raise OSError(answer.code, last(answer.err))
    return answer.out.strip()


def ran(*command: str) -> Answer:
    """A command of SLURM's, which may wait for a controller that is not there."""
    try:
        return run_command(list(command), ANSWER_S)
    except TimeoutError:
        raise TimeoutError("no answer") from None


def mpi_kinds() -> list[str]:
    """How srun can tell ranks of MPI who they are; some versions answer on standard error."""
    if shutil.which("srun") is None:
        return []
    ended = ran("srun", "--mpi=list")
    return [word for word in (ended.out + ended.err).replace(",", " ").split() if word.startswith(("pm", "none"))]


def last(text: str) -> str:
    """The last line that says something."""
    return next((cut(line) for line in reversed(text.splitlines()) if line.strip()), "no answer")


def cut(text: str) -> str:
    """One line that can be shown."""
    return " ".join(text.split())[:MOST_CHARACTERS]


def job() -> list[Finding]:
    """Only if there is one: what it gave us, and whether what launchers say fits together."""
    facts = launcher_text(*JOB)
    try:
        placement = detect()
    except UnisonoError as error:
        return [Finding("launcher", "warning", error.message, error.hint, facts)]
    if "SLURM_JOB_ID" not in facts:
        return []
    told = ", ".join(f"{name.removeprefix('SLURM_').lower()} {value}" for name, value in facts.items())
    return [Finding("SLURM job", "ok", f"{told}; this process: {placement.source}", facts=facts)]
