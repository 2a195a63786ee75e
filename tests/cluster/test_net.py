"""The net that other tests are played on: what a run that was killed has left is swept away, what others use is not."""

import os
import signal
import subprocess

import pytest

from support.cluster.namespaces import REASON, Net

pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20).stdout


def test_shared_memory_of_a_machine_goes_with_it(tmp_path):
    """Open MPI's has a name, and is left there by ranks that are killed."""
    name = f"unisono-test-{os.getpid()}"
    script = f"dd if=/dev/zero of=/dev/shm/{name} bs=4096 count=1 2>/dev/null; ls /dev/shm; exec sleep 300"
    with Net(1) as net:
        job = net.start(0, ["sh", "-c", script], dict(os.environ), tmp_path)
        assert job.stdout is not None
        assert job.stdout.readline() == f"{name}\n"
    assert name not in os.listdir("/dev/shm")


def test_what_a_killed_run_left_is_swept_away_with_its_processes_and_nothing_else():
    gone = subprocess.Popen(["true"])
    gone.wait(timeout=20)
    dead, living = f"uni{gone.pid}n0", f"uni{os.getpid()}n99"
    for name in (dead, living):
        ip("netns", "add", name)
    try:
        left = subprocess.Popen(["ip", "netns", "exec", dead, "sh", "-c", "echo here; exec sleep 300"], stdout=-1)
        assert left.stdout is not None
        with left.stdout:
            assert left.stdout.readline() == b"here\n"
            with Net(1) as net:
                names = ip("netns", "list")
                assert dead not in names
                assert living in names
                assert net.names[0] in names
                assert left.wait(timeout=20) == -signal.SIGKILL
        assert net.names[0] not in ip("netns", "list")
    finally:
        ip("netns", "delete", living)
