"""A real SLURM cluster on this one machine: a login node with slurmctld and munged, and nodes n1, n2, ... with slurmd.

Its one idea: a node is a process with name spaces of its own (network, host name, mounts, processes, IPC), and all
nodes live inside those of the login node. When that one's first process ends, the kernel ends everything else:
processes, networks, mounts. Nothing has a name outside, so clusters of several test sessions do not meet, and not even
kill -9 of pytest leaves anything behind but a directory of pytest's.

    with SlurmCluster(folder) as cluster: cluster.call(["srun", "-N2", "hostname"])

Every node has its own address and host name, its own /dev/shm, and the machine's files. Jobs run as root.
Needs root and the packages of `PACKAGES`; `missing()` says what is not there. Limits: cgroups confine nothing, so
memory limits are not enforced; there is no accounting (sacct).
"""

import os
import shutil
import signal
import subprocess
import time
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from unisono.environment.os_environ import child_environment
from unisono.supervise.children import die_with_parent

PACKAGES = "slurmctld slurmd slurm-client munge libpmix-dev iproute2"
CPUS, MEMORY_MB = 2, 4000
START_S, CALL_S = 30.0, 200.0
LOOK_S = 0.1
"""Between two looks: who looks without pause takes the cores away from what it waits for."""
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
UNSHARE = "unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc"

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=login(10.9.0.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket,cred_expire=5
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool.%n
TmpFS={base}/tmp
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=1
MpiDefault=none
SlurmdTimeout=15
MessageTimeout=10
KillWait=10
MinJobAge=600
NodeName=n[1-{nodes}] NodeAddr=10.9.0.[1-{nodes}] CPUs={cpus} RealMemory={memory_mb} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2
"""
"""cred_expire: a requeued job waits for its old credentials to expire, 2 minutes otherwise; 5 s is the least."""

LOGIN = """\
set -eu
cd {base}
hostname login
mount --bind hosts /etc/hosts
mount --bind /dev/null /etc/resolv.conf  # names that are unknown fail at once
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run  # munged wants its socket where everybody may go
ip link set lo up
ip link add bridge type bridge
ip addr add 10.9.0.254/24 dev bridge
ip link set bridge up
mungekey --create --keyfile=munge.key
munged --key-file={base}/munge.key --socket=/run/munge.socket --pid-file={base}/munged.pid \\
    --log-file={base}/munged.log --seed-file={base}/munged.seed
slurmctld -c
outer=$(readlink /proc/self/ns/net)
for number in $(seq {nodes}); do
    {unshare} bash node.sh "n$number" >"n$number.log" 2>&1 &
    until [ "$(readlink "/proc/$!/ns/net")" != "$outer" ]; do :; done
    ip link add "to-n$number" type veth peer name eth0 netns "$!"
    ip link set "to-n$number" master bridge up
done
sleep infinity &
echo started
wait  # the first process of a name space: it takes in orphans
"""

NODE = """\
set -eu
cd {base}
hostname "$1"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs tmp  # mpi/pmix needs a directory that nodes do not share
until ip addr add "10.9.0.${{1#n}}/24" dev eth0 2>/dev/null; do :; done
ip link set lo up
ip link set eth0 up
sleep infinity &
slurmd -N "$1"
wait
"""


@cache
def missing() -> str:
    """Why no cluster can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "only root may make name spaces and start slurmd"
    programs = ("slurmctld", "slurmd", "sbatch", "munged", "mungekey", "ip", "unshare", "nsenter")
    absent = [name for name in programs if shutil.which(name, path=_path()) is None]
    if absent:
        return f"there is no {', '.join(absent)}: apt-get install --no-install-recommends {PACKAGES}"
    tried = subprocess.run([*UNSHARE.split(), "true"], capture_output=True, text=True, timeout=START_S, check=False)
    return tried.stderr.strip() and f"name spaces cannot be made here: {tried.stderr.strip()}"


def _path() -> str:
    return f"{os.environ['PATH']}:{SBIN}"


class SlurmCluster:
    """Runs inside the block. `folder`: an empty directory, which all nodes see, as they see all files."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.folder = folder
        self.nodes = nodes
        self._login: subprocess.Popen[bytes] | None = None
        self._daemons: set[int] = set()

    def call(
        self, command: list[str], *, cwd: Path | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the login node, to its end."""
        return subprocess.run(
            self.entered(command),
            env=self.environment() | (environment or {}),
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=CALL_S,
            check=False,
        )

    def entered(self, command: list[str]) -> list[str]:
        """The command that runs `command` on the login node."""
        spaces = ("--net", "--uts", "--ipc", "--mount", "--pid")
        return ["nsenter", "--target", str(self.first_process), *spaces, "--wd=.", *command]

    @property
    def first_process(self) -> int:
        """Of the login node, as it is called outside."""
        assert self._login is not None
        return int(Path(f"/proc/{self._login.pid}/task/{self._login.pid}/children").read_text().split()[0])

    def settle(self) -> None:
        """Ends all jobs, and waits until nothing is left of them on any node."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if jobs := self.call(["squeue", "-h", "-o", "%i"]).stdout.split():
                self.call(["scancel", "--signal=KILL", "--full", *jobs])
                self.call(["scancel", *jobs])
            elif self._inside() <= self._daemons:
                return
            time.sleep(LOOK_S)
        raise AssertionError(f"jobs did not end: {self.call(['squeue', '-t', 'all']).stdout}")

    def environment(self) -> dict[str, str]:
        """What a user's shell on the login node has."""
        return child_environment(None) | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _path()}

    def _inside(self) -> set[int]:
        return {process.pid for process in psutil.Process(self.first_process).children(recursive=True)}

    def __enter__(self) -> Self:
        base, values = self.folder, {"base": self.folder, "nodes": self.nodes, "unshare": UNSHARE}
        for name in ("state", "tmp", *(f"spool.n{number + 1}" for number in range(self.nodes))):
            (base / name).mkdir()
        addresses = {f"n{number + 1}": f"10.9.0.{number + 1}" for number in range(self.nodes)} | {"login": "10.9.0.254"}
        # Mapped addresses, too: torch asks for the names of those.
        lines = [f"{address} {name}\n::ffff:{address} {name}" for name, address in addresses.items()]
        (base / "hosts").write_text("\n".join(["127.0.0.1 localhost", "::1 localhost", *lines]) + "\n")
        (base / "slurm.conf").write_text(CONFIGURATION.format(**values, cpus=CPUS, memory_mb=MEMORY_MB))
        (base / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # else slurmd looks for one, and ends
        (base / "login.sh").write_text(LOGIN.format(**values))
        (base / "node.sh").write_text(NODE.format(**values))
        with open(base / "login.log", "wb") as log:
            self._login = subprocess.Popen(
                [*UNSHARE.split(), "bash", str(base / "login.sh")],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=partial(die_with_parent, os.getpid()),
                start_new_session=True,
            )
        try:
            self._await_nodes()
            self._daemons = self._inside()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _await_nodes(self) -> None:
        assert self._login is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._login.poll() is None:
            if (self.folder / "login.log").read_text().endswith("started\n"):
                ready = self.call(["sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N"]).stdout.split()
                if len(ready) == self.nodes:
                    return
            time.sleep(0.2 * LOOK_S)
        logs = "\n".join(f"{path.name}:\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))
        raise AssertionError(f"the cluster did not come up\n{logs}")

    def _end(self) -> None:
        assert self._login is not None
        if self._login.poll() is None:
            os.kill(self.first_process, signal.SIGKILL)  # and with it everything inside, before its parent hears of it
        self._login.wait(START_S)
        shutil.rmtree(self.folder)
