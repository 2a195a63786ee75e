"""Fixtures of tests about what is left on disks."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest


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
