from pathlib import Path

import pytest

from unisono import resources
from unisono.resources import available_bytes, group_task_room, readable_bytes, usable_cores

GIB = 2**30


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A hierarchy of groups made of plain files; write(path, text)."""
    monkeypatch.setattr(resources, "_CGROUP", tmp_path)
    monkeypatch.setattr(resources, "_OWN", tmp_path / "own")
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(resources.psutil, "virtual_memory", lambda: type("M", (), {"available": 100 * GIB}))

    def write(path: str, text: str) -> None:
        target = Path(tmp_path / path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    return write


def test_without_groups_the_machine_counts(groups):
    assert usable_cores() == 64
    assert available_bytes() == 100 * GIB


def test_the_smallest_limit_on_the_way_up_counts(groups):
    groups("own", "0::/slurm/job_7/step_0\n")
    groups("slurm/job_7/memory.max", f"{8 * GIB}\n")
    groups("slurm/job_7/memory.current", f"{3 * GIB}\n")
    groups("slurm/job_7/step_0/memory.max", "max\n")
    groups("slurm/cpu.max", "400000 100000\n")
    groups("slurm/job_7/cpu.max", "max 100000\n")
    assert available_bytes() == 5 * GIB
    assert usable_cores() == 4


def test_the_groups_tell_how_many_processes_may_still_be_started(groups):
    assert group_task_room() is None
    groups("own", "0::/slurm/job_7\n3:pids:/old\n")
    groups("slurm/pids.max", "400\n")
    groups("slurm/pids.current", "371\n")
    groups("slurm/job_7/pids.max", "max\n")
    groups("slurm/job_7/pids.current", "5\n")
    assert group_task_room() == 29
    groups("pids/old/pids.max", "17\n")
    groups("pids/old/pids.current", "19\n")
    assert group_task_room() == 0


def test_cached_files_do_not_count_as_used(groups):
    groups("own", "0::/\n")
    groups("memory.max", f"{8 * GIB}")
    groups("memory.current", f"{8 * GIB}")
    groups("memory.stat", f"anon 1\ninactive_file {6 * GIB}\n")
    assert available_bytes() == 6 * GIB


def test_version_1_groups(groups):
    groups("own", "5:cpu,cpuacct:/a\n4:memory:/b\n1:name=systemd:/c\n")
    groups("cpu/a/cpu.cfs_quota_us", "150000")
    groups("cpu/a/cpu.cfs_period_us", "100000")
    groups("memory/b/memory.limit_in_bytes", f"{2 * GIB}")
    groups("memory/b/memory.usage_in_bytes", f"{GIB}")
    assert usable_cores() == 1
    assert available_bytes() == GIB


def test_sizes_are_readable():
    sizes = {0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 2**20: "1 MiB", 5 * 2**40: "5.0 TiB"}
    assert {size: readable_bytes(size) for size in sizes} == sizes
