"""The environment: who this process is, what else its variables say, and what those are told who are started from here.

One idea: this is the only file that reads `os.environ`, or writes to it. What launchers' variables mean is in
`launcher_variables.py`.

>>> detect({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}).rank
1
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path

from unisono.environment.launcher_variables import ENVIRONMENTS, OPEN_MPI, PMIX, TORCHRUN, placement_of
from unisono.environment.main_address import main_address
from unisono.environment.process_rank import Placement
from unisono.errors import UserError

OWN_RANK = "UNISONO_RANK"
"""Set in ranks of `unisono.run`."""

SECRET = "UNISONO_SECRET"
"""What machines prove to each other; see `secret.py`. Programs that are started from here do not get it."""

LAUNCHED, REPLACE_GLOO = "UNISONO_LAUNCHED", "UNISONO_REPLACE_GLOO"
"""Set in ranks of `unisono launch`."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LAUNCH_NAMES = frozenset(
    {"MASTER_ADDR", "MASTER_PORT", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "SLURM_STEP_ID", "SLURM_STEPID"}
).union(*(astuple(row)[1:] for row in ENVIRONMENTS))
# TORCHELASTIC_USE_AGENT_STORE would make a child's process group wait for a store that nobody serves.
_LAUNCH_PREFIXES = ("UNISONO_", "OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDI_", "TORCHELASTIC_")


def detect(environ: Mapping[str, str] | None = None, *, terminal: bool | None = None) -> Placement:
    """Who this process is. `terminal`: whether a person's terminal controls it; found out when None."""
    environ = os.environ if environ is None else environ
    if OWN_RANK in environ:
        raise UserError(
            f"this process is rank {environ[OWN_RANK]} of unisono.run",
            hint="use the world that was given to the function, instead of unisono.join()",
        )
    facts = {name: value.strip() for name, value in environ.items() if value.strip()}
    return placement_of(facts, _has_terminal if terminal is None else lambda: terminal)


def launcher_text(*names: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those of the variables that are set: for people to read."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in names if name in environ}


def has_desktop(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a browser that is started here appears before the user: not on the far side of an SSH connection."""
    environ = os.environ if environ is None else environ
    return "SSH_CONNECTION" not in environ and bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def given_secret(environ: Mapping[str, str] | None = None) -> str:
    """The secret between machines, if a variable holds one."""
    return (os.environ if environ is None else environ).get(SECRET, "")


def without_secret(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of any other program: all but what it need not know."""
    environ = os.environ if environ is None else environ
    return {name: value for name, value in environ.items() if name != SECRET}


def forget_secret() -> None:
    """Called in ranks, which run the user's code: the secret is between their supervisors. Also where nobody needs it
    and others start programs."""
    os.environ.pop(SECRET, None)


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where programs keep what a user set: XDG_CONFIG_HOME, or ~/.config."""
    given = (os.environ if environ is None else environ).get("XDG_CONFIG_HOME", "")
    return Path(given) if os.path.isabs(given) else Path("~/.config").expanduser()


def runtime_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where programs of one user keep what is for this machine alone: XDG_RUNTIME_DIR, if there is one."""
    given = (os.environ if environ is None else environ).get("XDG_RUNTIME_DIR", "")
    return Path(given) if os.path.isabs(given) else None


def enter_rank(rank: int, size: int) -> None:
    """Called in a rank that our own launcher started, so that it, and what it starts, is not taken for one alone."""
    os.environ[OWN_RANK] = f"{rank} of {size}"
    forget_secret()


def launched_rank(environ: Mapping[str, str] | None = None) -> Placement | None:
    """Who this process is, with the address of rank 0, if mpirun, srun or torchrun started it as one of several."""
    environ = os.environ if environ is None else environ
    placement = detect(environ)
    if placement.size == 1:
        return None
    return placement if placement.address else replace(placement, address=main_address(environ, placement))


def rank_around_launch(environ: Mapping[str, str] | None = None) -> tuple[Placement | None, str]:
    """`launched_rank` for `unisono launch`, and the variables of torchrun's that do not count: torchrun has not set
    them, so they may be left over. Nor do those of an outer `unisono launch`."""
    environ = os.environ if environ is None else environ
    if LAUNCHED not in environ and "TORCHELASTIC_RUN_ID" in environ:
        return launched_rank(environ), ""
    names = astuple(TORCHRUN)[1:]
    found = {name: value for name, value in environ.items() if not name.startswith("ACCELERATE_")}
    counted = {name: value for name, value in found.items() if name not in names}
    ignored = [] if LAUNCHED in environ else [name for name in names[:2] if name in found]
    return launched_rank(counted), " and ".join(ignored)


def fill_torch_variables(environ: MutableMapping[str, str] | None = None) -> None:
    """Sets those variables of torchrun's that torch looks for and mpirun or srun does not set."""
    environ = os.environ if environ is None else environ
    needed = (TORCHRUN.rank, TORCHRUN.size, "MASTER_ADDR", "MASTER_PORT")
    if TORCHRUN.rank in environ or TORCHRUN.size in environ or all(name in environ for name in needed):
        return
    if (placement := launched_rank(environ)) is not None:
        given = {name: environ[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in environ}
        environ.update(_torch_numbers(placement) | given)


def _torch_numbers(placement: Placement) -> dict[str, str]:
    """What torch's ranks read, as far as it is known."""
    host, _, port = (placement.address or "").rpartition(":")
    numbers = {
        TORCHRUN.rank: placement.rank, TORCHRUN.size: placement.size, TORCHRUN.local_rank: placement.local_rank,
        TORCHRUN.local_size: placement.local_size, "MASTER_ADDR": host.strip("[]"), "MASTER_PORT": port,
    }  # fmt: skip
    return {name: str(value) for name, value in numbers.items() if value is not None}


def script_environment(
    placement: Placement,
    threads: int,
    *,
    replace_gloo: bool,
    chosen: bool = False,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of one rank of an unchanged torch script: torchrun's variables, and the backend unisono.

    chosen: whether the number of threads was asked for, or must be this one, whatever variables say.
    """
    environ = os.environ if environ is None else environ
    numbers = {
        TORCHRUN.node: placement.node, TORCHRUN.nodes: placement.nodes, "ROLE_RANK": placement.rank,
        "ROLE_WORLD_SIZE": placement.size, TORCHRUN.restarts: placement.restarts, "TORCHELASTIC_MAX_RESTARTS": 0,
    }  # fmt: skip
    made = _without_launch(environ) | _torch_numbers(placement)
    made |= {name: str(number) for name, number in numbers.items() if number is not None}
    made |= {"TORCHELASTIC_RUN_ID": "unisono", LAUNCHED: "1"}
    if chosen or not any(name in made for name in THREADS):  # else what the user has set in variables counts
        made |= dict.fromkeys(THREADS, str(threads))
    if replace_gloo:
        made[REPLACE_GLOO] = "1"
    return made


def backend_wishes(environ: Mapping[str, str] | None = None) -> tuple[bool, bool]:
    """Whether `unisono launch` started this process, and whether its backend is to stand for gloo."""
    environ = os.environ if environ is None else environ
    return LAUNCHED in environ, REPLACE_GLOO in environ


def main_host(environ: Mapping[str, str] | None = None) -> str:
    """The host whose address torch's ranks were given; empty if gloo is told an interface, or nothing is given."""
    environ = os.environ if environ is None else environ
    return "" if environ.get("GLOO_SOCKET_IFNAME") else environ.get("MASTER_ADDR", "")


def silence_kineto() -> None:
    """torch's profiler tells the terminal when it starts and stops; a rank that profiles calls this before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def visible_gpus(environ: Mapping[str, str] | None = None) -> list[int] | None:
    """The numbers of the GPUs that CUDA_VISIBLE_DEVICES lets this process use; None: all, or not given by number."""
    given = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES", "")
    fields = [field.strip() for field in given.split(",")]
    return [int(field) for field in fields] if all(field.isdecimal() for field in fields) else None


def untranslated(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command whose answer is to be understood: the same words and numbers in every locale."""
    return {**without_secret(environ), "LC_ALL": "C"}


def mpi_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment to start `mpirun` in: nothing of an outer job, and leave to run as root.

    SLURM's variables go too: with them mpirun would start its ranks on the job's other nodes.
    """
    child = {k: v for k, v in _without_launch(environ).items() if not k.startswith("SLURM_")}
    if os.geteuid() == 0:
        child |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return child


def child_environment(threads: int | None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child that is nobody's rank: launch variables removed, BLAS threads set when given.

    What merely describes the job (SLURM_JOB_ID, SLURM_TMPDIR) stays: user code looks for it.
    """
    if threads is not None and threads < 1:
        raise UserError(f"threads is {threads}", hint="give 1 or more")
    return _without_launch(environ) | ({} if threads is None else dict.fromkeys(THREADS, str(threads)))


@contextmanager
def tidy_lone_mpi(environ: MutableMapping[str, str] | None = None) -> Iterator[None]:
    """Let MPI start inside: Open MPI 5 without a launcher leaves a segment in /dev/shm behind, unless told otherwise.

    Such a process has nobody to share memory with, so that component is left out, unless the user chose components.
    Afterwards the environment is as before: programs started from here are not alone.
    """
    environ = os.environ if environ is None else environ
    alone = PMIX.stamp not in environ and "OMPI_MCA_btl" not in environ
    if alone:
        environ["OMPI_MCA_btl"] = "self"
    try:
        yield
    finally:
        if alone:
            del environ["OMPI_MCA_btl"]


@contextmanager
def torch_variables(
    placement: Placement, threads: int, environ: MutableMapping[str, str] | None = None, *, interface: str = ""
) -> Iterator[None]:
    """Inside, torchrun's variables describe `placement`: libraries around torch look there. Then all is as before.

    `threads`: said too where nobody has, for such libraries choose a number themselves otherwise. `interface`: the one
    that gloo is to use, unless the user has chosen one.
    """
    environ = os.environ if environ is None else environ
    before = dict(environ)
    host, _, port = (placement.address or "").rpartition(":")
    said = {
        TORCHRUN.rank: placement.rank,
        TORCHRUN.size: placement.size,
        TORCHRUN.local_rank: placement.local_rank,
        TORCHRUN.local_size: placement.local_size,
    }
    environ.update({name: str(number) for name, number in said.items()})
    if host:
        environ.update({"MASTER_ADDR": host, "MASTER_PORT": port})
    environ.setdefault(THREADS[0], str(threads))
    if interface:
        environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    try:
        yield
    finally:
        for name in set(environ) - set(before):
            del environ[name]
        environ.update(before)


def _without_launch(environ: Mapping[str, str] | None) -> dict[str, str]:
    environ = os.environ if environ is None else environ
    # OMPI_MCA_btl=... is a setting of the user, but mpirun hands its ranks such variables too, and those confuse.
    users_own = () if OPEN_MPI.rank in environ else ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(users_own) or not (name in _LAUNCH_NAMES or name.startswith(_LAUNCH_PREFIXES))
    }


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
