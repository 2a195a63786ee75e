"""Every test must leave the process as it found it: no environment variable, thread, child, descriptor or memory."""

import gc
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from support.forked import run_forked

# A busy machine is no failure: how long an example takes is not judged.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Who starts the suite in the background (&, nohup) has these ignored, and so would have every program that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)  # of no effect here, and forgotten by programs

DESCRIPTORS = ("memfd", "pidfd", "socket", "/pytest-of-")
"""Of memory, processes, connections, and files of tests; others may be pytest's own, or a library's for good."""
VARIABLES = ("PYTEST_CURRENT_TEST", "KMP_DUPLICATE_LIB_OK")
"""Of pytest; and of torch, which sets it when parts of it are imported."""
LEFT_S = 2.0
"""How long a thread or a child may take to end."""
SHARED_LEFT_S = 20.0
"""How long a file of /dev/shm may be seen that another process is making or removing; mpirun takes its time."""


def holdings() -> dict[str, set[str]]:
    """What this process holds that a test could leak."""
    gc.collect()
    descriptors = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            descriptors.add(f"{entry} -> {os.readlink(f'/proc/self/fd/{entry}')}")
        except OSError:
            continue  # the descriptor of the listing itself
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "environment": {f"{name}={value}" for name, value in os.environ.items() if name not in VARIABLES},
        "threads": {thread.name for thread in threading.enumerate()},
        "children": _children(),
        "shared memory": set(os.listdir("/dev/shm")),
        "mappings": {line for line in maps if "memfd:unisono" in line},
        "descriptors": {entry for entry in descriptors if any(kind in entry for kind in DESCRIPTORS)},
    }


def _children() -> set[str]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # the kernel knows of none, which is quicker than to look at all processes
    return {f"{child.pid} {child.name()}" for child in psutil.Process().children(recursive=True)}


def _end(children: set[str]) -> None:
    """A test that fails may leave some, which would keep the others' cores busy."""
    ended = []
    for child in psutil.Process().children(recursive=True):
        if any(entry.startswith(f"{child.pid} ") for entry in children):
            with suppress(psutil.NoSuchProcess):
                child.kill()
                ended.append(child)
    psutil.wait_procs(ended, LEFT_S)


def _is_left(name: str) -> bool:
    """Whether this file of /dev/shm stays, and nobody uses it; other processes may be making or removing theirs."""
    deadline = time.monotonic() + SHARED_LEFT_S
    while Path("/dev/shm", name).exists() and not _used_by_others(name):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def _staying(names: set[str]) -> set[str]:
    """Those of the threads that do not end within a moment: one that waits for a process to end ends after it."""
    deadline = time.monotonic() + LEFT_S
    while (left := names & {thread.name for thread in threading.enumerate()}) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _used_by_others(name: str) -> bool:
    """Whether a living process that is not ours has this file of /dev/shm mapped."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for pid in set(psutil.pids()) - ours:
        try:
            if f"/dev/shm/{name}" in Path(f"/proc/{pid}/maps").read_text():
                return True
        except OSError:
            continue  # it ended, or is another user's
    return False


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs tests with the mark `forked` in processes of their own."""
    if pyfuncitem.get_closest_marker("forked") is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_forked(partial(pyfuncitem.obj, **arguments))
    return True


@pytest.fixture(scope="session", autouse=True)
def config_home(tmp_path_factory) -> Iterator[None]:
    """Machines that tests start make their secret here, not in the home of whoever starts the tests."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    yield
    if before is None:
        del os.environ["XDG_CONFIG_HOME"]
    else:
        os.environ["XDG_CONFIG_HOME"] = before


@pytest.fixture(autouse=True)
def heeding_signals() -> Iterator[None]:
    """A command that was asked to end ignores all further requests, for it leaves; pytest does not."""
    numbers = signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) == signal.SIG_IGN or number == signal.SIGINT:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = holdings()
    gc.freeze()  # what is there now is no garbage of the test's: else torch alone, once imported, costs 60 ms a look
    yield
    found = holdings()
    if children := found["children"] - before["children"]:
        _end(children)  # first: threads may wait for them
    for what, entries in found.items():
        left = entries - before[what]
        if what == "shared memory":
            left = {name for name in left if _is_left(name)}
        if what == "threads":
            left = _staying(left)
        assert not left, f"the test left {what} behind: {left}"


@pytest.fixture
def killable_mpi(tmp_path) -> Iterator[dict[str, str]]:
    """The environment of an mpirun that may be killed, or crash, with its ranks: nobody then removes Open MPI's
    segments, so they lie in a directory of the test's own instead of /dev/shm."""
    from unisono.environment.os_environ import mpi_environment

    folder = tmp_path / "segments"
    folder.mkdir()
    yield mpi_environment() | {"OMPI_MCA_btl_sm_backing_directory": str(folder)}
    shutil.rmtree(folder)


@pytest.fixture
def no_price(monkeypatch) -> None:
    """What shards cost is not measured at the end of a run, which takes 50 ms."""
    monkeypatch.setattr("unisono.training.epoch_end.shard_overhead", lambda *given: 1.0)


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Callable[[int], Path]]:
    """small_disk(kib): a file system of its own, of so many KiB. A test that leaves a file open there fails."""
    with ExitStack() as mounted:

        def mount(kib: int) -> Path:
            place = tmp_path / "disk"
            place.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "unisono-test", str(place)]
            if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("no disk can be mounted by this user")
            mounted.callback(unmount, place)
            return place

        yield mount


def unmount(place: Path) -> None:
    ended = subprocess.run(["umount", str(place)], capture_output=True, text=True, check=False)
    if ended.returncode:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # the next test must not find it
        pytest.fail(f"something of the test's is still open there: {ended.stderr.strip()}")
