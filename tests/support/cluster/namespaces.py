"""Machines of a network, played by network name spaces with a cable (veth) each to a switch of their own.

    with Net(2) as net:
        job = net.start(0, ["unisono", "train", ...], environment)
        net.unplug(1); net.slow("1gbit")

Each has its own address, host name (which resolves nowhere) and abstract sockets, so for unisono it is a node; what is
started there has a /dev/shm of its own. What a test leaves running in them is ended with the net; what a run of the
tests leaves that was killed is swept away by the next net. Needs root, and `ip`; `REASON` says what is missing.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.launch.launcher_commands import find_program

REASON = (
    "needs root"
    if os.geteuid()
    else "needs the command ip (iproute2)"
    if shutil.which("ip") is None
    else "network name spaces are not allowed here"
    if subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False).returncode
    else ""
)
"""Why there can be no such net; empty if there can."""

_HOSTS = Path("/etc/netns")
"""`ip netns exec` puts the files of a folder here over those of /etc."""
_ENTER, _AGENT = (str(Path(__file__).with_name(name)) for name in ("enter_node.sh", "launch_agent.sh"))


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20).stdout


class Net:
    """So many machines; number k has the address `address(k)`."""

    def __init__(self, count: int) -> None:
        self.names = [f"uni{os.getpid()}n{node}" for node in range(count)]
        self._switch = f"uni{os.getpid()}s"
        self._jobs: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        sweep()
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "hub", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "hub", "up")
            for node, name in enumerate(self.names):
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", f"port{node}", "netns", self._switch)
                _ip("-n", name, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", self._switch, "link", "set", f"port{node}", "master", "hub")
                _ip("-n", self._switch, "link", "set", f"port{node}", "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in range(len(self.names)):
            self.power_off(node)
        for job in self._jobs:
            job.wait(timeout=20)
            for pipe in (job.stdout, job.stderr):
                if pipe is not None:
                    pipe.close()
        for name in [*self.names, self._switch]:
            _remove(name)

    @staticmethod
    def address(node: int) -> str:
        return f"10.213.77.{node + 1}"

    def start(self, node: int, command: list[str], environment: dict[str, str], cwd: Path) -> subprocess.Popen[str]:
        """Runs a command on a machine."""
        job = subprocess.Popen(
            [_ENTER, self.names[node], f"node{node}", *command], env=environment, cwd=cwd, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._jobs.append(job)
        return job

    def mpirun(
        self, counts: Sequence[int], command: list[str], environment: dict[str, str], cwd: Path
    ) -> subprocess.Popen[str]:
        """Runs a command on so many ranks of each machine, from the first one."""
        hosts = ",".join(f"{self.address(node)}:{count}" for node, count in enumerate(counts))
        where = ["--prtemca", "plm_ssh_agent", _AGENT, "--host", hosts, "-n", str(sum(counts)), "--bind-to", "none"]
        told = mpi_environment(environment) | {"NET_NAMES": " ".join(self.names)}
        return self.start(0, [find_program("mpirun") or "mpirun", *where, *command], told, cwd)

    def ranks(
        self, layout: Sequence[int], command: list[str], folder: Path, **variables: object
    ) -> list[subprocess.Popen[str]]:
        """Runs a command as so many ranks on each machine, which torch's variables tell who they are; torchrun would
        set the same, and takes seconds more."""
        jobs = []
        for node, count in enumerate(layout):
            for local in range(count):
                rank = sum(layout[:node]) + local
                told = {"RANK": rank, "WORLD_SIZE": sum(layout), "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": count}
                told |= {"MASTER_ADDR": self.address(0), "MASTER_PORT": 29500, **variables}
                environment = child_environment(1) | {name: str(value) for name, value in told.items()}
                jobs.append(self.start(node, command, environment, folder))
        return jobs

    def name_hosts(self, node: int, lines: str) -> None:
        """What /etc/hosts is for commands that are started on a machine from now on."""
        folder = _HOSTS / self.names[node]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text(lines)

    def power_off(self, node: int) -> None:
        """Kills everything on a machine."""
        _kill_all(self.names[node])

    def unplug(self, node: int) -> None:
        """Pulls its cable: nobody hears of it."""
        _ip("-n", self._switch, "link", "set", f"port{node}", "down")

    def plug(self, node: int) -> None:
        """Puts it back."""
        _ip("-n", self._switch, "link", "set", f"port{node}", "up")

    def slow(self, rate: str, node: int | None = None) -> None:
        """All cables, or that of one machine, carry no more than this in each direction."""
        shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
        for number, name in enumerate(self.names):
            for where, device in ((name, "eth0"), (self._switch, f"port{number}")):
                command = ["tc", "-n", where, "qdisc", "replace", "dev", device, *shape]
                if node in (None, number):
                    subprocess.run(command, check=True, capture_output=True, timeout=20)

    def in_vain(self, node: int) -> int:
        """How often somebody on a machine has knocked where nobody listened."""
        counts = _ip("netns", "exec", self.names[node], "grep", "^Tcp:", "/proc/net/snmp").splitlines()
        return int(dict(zip(*map(str.split, counts), strict=True))["AttemptFails"])

    def forbid(self, node: int, other: int) -> None:
        """As behind a firewall: what one machine sends to another is lost, answers among it, and nobody says so."""
        nowhere = ["lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"]
        _ip("-n", self.names[node], "neigh", "replace", self.address(other), *nowhere)


def _kill_all(name: str) -> None:
    found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False, timeout=20)
    for pid in found.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _remove(name: str) -> None:
    shutil.rmtree(_HOSTS / name, ignore_errors=True)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False, timeout=20)


def sweep() -> None:
    """Ends what is left of nets whose process was killed: their names hold its number."""
    for name in re.findall(r"^uni\d+(?:n\d+|s)\b", _ip("netns", "list"), re.MULTILINE):
        if not Path("/proc", re.findall(r"\d+", name)[0]).exists():
            _kill_all(name)
            _remove(name)


def ends(jobs: list[subprocess.Popen[str]], timeout_s: float = 150.0) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of each, when all have ended; they have so long together."""
    deadline = time.monotonic() + timeout_s
    told = [job.communicate(timeout=max(0.0, deadline - time.monotonic())) for job in jobs]
    return [(job.returncode, *texts) for job, texts in zip(jobs, told, strict=True)]
