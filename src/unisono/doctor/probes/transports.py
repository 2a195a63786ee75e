"""Transports: whether 2 ranks can exchange numbers over shared memory, MPI and gloo; host name and ports; Accelerate.

    python -m unisono.doctor.probe_entry mpi
    python -m unisono.doctor.probe_entry network

The one idea: an installed package proves little, because launchers, host names and memory are what fails. So each probe
of a transport starts 2 ranks as `unisono bench` does, lets them add numbers up, and looks at the sum (`exchange`).

Limits: Accelerate, which is only needed for comparisons, is only imported.
"""

import errno
import ipaddress
import socket
import subprocess
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from unisono.doctor.finding import Finding
from unisono.doctor.probes import PATIENCE_S
from unisono.environment.os_environ import mpi_environment
from unisono.errors import UnisonoError
from unisono.launch.launcher_commands import find_program, mpi_problem
from unisono.measure.allreduce_bench import BenchOptions, measure, plan
from unisono.optional_packages import how_to_install
from unisono.report.run.outcome_and_advice import readable_s

ARENA_FIX = "unisono cannot train on several ranks here; paste `unisono doctor --json` into a bug report"
MPI_INSTALL = f"{how_to_install('mpi')}: mpi4py and a whole Open MPI, as wheels"
MPI_LIBRARY = "export MPI4PY_LIBMPI=/path/to/libmpi.so; or let mpirun or torchrun start the ranks"
MPI_FIX = (
    "mpi4py and mpirun must be of the same MPI: `mpirun --version`, `python -m mpi4py --mpi-library`; " + MPI_INSTALL
)
GLOO_FIX = "let 127.0.0.1 through: is the loopback interface up (`ip link show lo`)? A firewall may be in the way"
ACCELERATE_INSTALL = how_to_install("accelerate")
ELEMENTS = 16384
TORCHRUN_PORT = 29500
"""torchrun's, unless it is told another."""


def probe_arena() -> list[Finding]:
    """unisono's own launcher and shared memory. Nothing works without it, and there is nothing to install."""
    return [exchange("shared memory", "shm", "arena", ARENA_FIX)]


def probe_mpi() -> list[Finding]:
    """Whether mpi4py and mpirun are there and belong together. Not needed on one machine."""
    if find_spec("mpi4py") is None:
        text = "mpi4py is not installed; it is for ranks of mpirun and srun alone"
        return [Finding("MPI", "missing", text, MPI_INSTALL)]
    program = find_program("mpirun")
    problem = mpi_problem()
    if program is None:
        text = f"mpi4py {metadata.version('mpi4py')} is there, mpirun is not"
        return [Finding("MPI", "missing", f"{text}, nor a library: {problem}" if problem else text, MPI_INSTALL)]
    facts = {"mpi4py": metadata.version("mpi4py"), "mpirun": program, "version": mpirun_version(program)}
    text = f"{facts['version']}, mpi4py {facts['mpi4py']}"
    ranks = exchange("MPI, 2 ranks", "mpi", "native", MPI_FIX)
    srun = [srun_finding(problem)] if problem and ranks.status == "ok" else []
    return [Finding("MPI", "ok", text, facts=facts), ranks, *srun]


def srun_finding(problem: str) -> Finding:
    """mpirun passes the path of its library on; ranks of srun must find it by themselves."""
    text = f"mpi4py finds its library under mpirun alone ({problem}): ranks that srun starts would fail"
    status = "warning" if find_program("srun") else "missing"
    return Finding("MPI, by srun", status, text, MPI_LIBRARY)


def mpirun_version(program: str) -> str:
    """What an mpirun calls itself: 'mpirun (Open MPI) 5.0.11'."""
    output = subprocess.run(
        [program, "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=10,
        check=False,
        env=mpi_environment(),
    ).stdout
    lines = [line.strip() for line in output.splitlines()]
    named = next((line for line in lines if line.startswith("Version:")), "")  # MPICH's second line
    return f"MPICH {named.split()[-1]}" if named else next(iter(lines), "") or program


def probe_gloo() -> list[Finding]:
    """torch's transport between CPUs; no finding without torch, which has its own probe."""
    return [exchange("gloo, 2 ranks", "gloo", "native", GLOO_FIX)] if find_spec("torch") else []


def probe_accelerate() -> list[Finding]:
    """Whether `--strategy accelerate` can be imported."""
    if find_spec("accelerate") is None:
        text = "not installed; it is for --strategy accelerate, a comparison"
        return [Finding("Accelerate", "missing", text, ACCELERATE_INSTALL)]
    version = metadata.version("accelerate")
    try:
        import_module("unisono.strategies.external.accelerate")
    except Exception as error:  # the user wants to see any error of the import
        text = f"Accelerate {version} cannot be imported: {type(error).__name__}: {error}"
        return [Finding("Accelerate", "warning", text, ACCELERATE_INSTALL, {"version": version})]
    return [Finding("Accelerate", "ok", f"Accelerate {version}", facts={"version": version})]


def exchange(name: str, transport: str, algorithm: str, fix: str) -> Finding:
    """A finding about 2 ranks over `transport`. fix: what to do if they fail."""
    options = BenchOptions(
        ranks="2", transports=transport, algorithms=algorithm, elements=str(ELEMENTS), seconds=0.05,
        timeout_s=PATIENCE_S / 2,
    )  # fmt: skip
    try:
        (record,) = measure(plan(options))
    except UnisonoError as error:
        told = f"2 ranks could not exchange numbers: {last_line(error.message)}"
        return Finding(name, "failed", told, error.hint or fix)
    facts: dict[str, Any] = {key: record[key] for key in ("transport", "algorithm", "median_us", "correct")}
    if not record["correct"]:
        return Finding(name, "failed", "2 ranks added numbers up, and the sum is wrong", fix, facts)
    took = readable_s(record["median_us"] / 1e6)
    told = f"2 ranks started and added up {4 * ELEMENTS // 1024} KiB in {took}, rightly"
    return Finding(name, "ok", told, facts=facts)


def last_line(text: str) -> str:
    """The last line of what a program printed before it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def probe_network() -> list[Finding]:
    """Between nodes the name counts, on one machine only ports of loopback."""
    return [host_name(socket.gethostname()), ports(TORCHRUN_PORT)]


def host_name(host: str) -> Finding:
    """Whether the host's own name leads to an address that other nodes could use."""
    fix = "give it a line in /etc/hosts with the address of the network, or set GLOO_SOCKET_IFNAME=eth0 (`ip address`)"
    other = "unisono looks for the way to other nodes itself, but torch's gloo needs an address"
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        told = f"{host} leads nowhere ({error.strerror}): {other}"
        return Finding("host name", "warning", told, fix, {"host": host, "addresses": []})
    addresses = sorted(str(address) for address in found)
    facts = {"host": host, "addresses": addresses}
    if all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        told = f"{host} leads to {', '.join(addresses)} only: {other}"
        return Finding("host name", "warning", told, fix, facts)
    return Finding("host name", "ok", f"{host} is {', '.join(addresses)}", facts=facts)


def ports(usual: int) -> Finding:
    """Whether one can listen on loopback at all, and whether torchrun's usual port is free."""
    try:
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            any_port.listen()
    except OSError as error:
        told = f"cannot listen on 127.0.0.1: {error.strerror}"
        return Finding("ports", "warning", told, "is the loopback interface up? `ip link set lo up`")
    try:
        with socket.socket() as probed:
            probed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probed.bind(("", usual))
    except OSError as error:
        why = "taken" if error.errno == errno.EADDRINUSE else f"not to be had: {error.strerror}"
        told = f"loopback works; {usual}, torchrun's usual port, is {why}"
        return Finding("ports", "warning", told, "torchrun --standalone takes a free one, --master-port another")
    return Finding("ports", "ok", f"loopback works; {usual}, torchrun's usual port, is free")
