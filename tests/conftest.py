"""Every test must leave the process as it found it: no environment variable, thread, child, descriptor or memory."""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

DESCRIPTORS = ("memfd", "pidfd", "socket", "/pytest-of-")
"""Of memory, processes, connections, and files of tests; others may be pytest's own, or a library's for good."""


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
        "environment": {f"{name}={value}" for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "threads": {thread.name for thread in threading.enumerate()},
        "children": {f"{child.pid} {child.name()}" for child in psutil.Process().children(recursive=True)},
        "shared memory": {name for name in os.listdir("/dev/shm") if not _used_by_others(name)},
        "mappings": {line for line in maps if "memfd:unisono" in line},
        "descriptors": {entry for entry in descriptors if any(kind in entry for kind in DESCRIPTORS)},
    }


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


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = holdings()
    yield
    after = holdings()
    for what, found in after.items():
        assert not found - before[what], f"the test left {what} behind: {found - before[what]}"
