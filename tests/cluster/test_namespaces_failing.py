"""A failure that would come again, on one machine, is no loss: all leave with its reason and its exit code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.cluster.namespaces import REASON, Net, ends
from support.needs import needs_mpi, needs_torch
from support.paths import worker
from unisono.environment.os_environ import child_environment
from unisono.storage.snapshots.snapshot import listed

pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=REASON),
    needs_torch,
    pytest.mark.timeout(300),
]

FRAIL = f"{worker('frail_module')[1]}:make"
TRAIN = [sys.executable, "-m", "unisono", "train", "--epochs", "30", "--model", FRAIL]
RAISED = "ValueError: this batch has no label"


def environment(how: str) -> dict[str, str]:
    return child_environment(1) | {"FRAIL": how}


def by_hand(net: Net, count: int, how: str, folder: Path, ranks: int = 1) -> list[subprocess.Popen[str]]:
    more = ["--ranks", str(ranks), "--num-nodes", str(count), "--main-address", net.address(0), "--out", "run"]
    return [net.start(node, [*TRAIN, *more, "--node-id", str(node)], environment(how), folder) for node in range(count)]


def test_an_exception_on_one_machine_ends_all_supervisors_with_it(tmp_path):
    with Net(3) as net:
        told = ends(by_hand(net, 3, "raises", tmp_path))
    assert [code for code, _, _ in told] == [1, 1, 1], told
    assert all(RAISED in said for _, _, said in told), told
    for node in (0, 2):
        assert "unisono: node 1 (node1, 10.213.77.2, rank 1): rank 1: Traceback" in told[node][2], told
    assert not (tmp_path / "run" / "snapshots").exists()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"


def test_a_step_that_ends_rank_after_rank_on_one_machine_is_saved_on_the_first_and_not_called_a_loss(tmp_path):
    with Net(2) as net:
        told = ends(by_hand(net, 2, "exits", tmp_path, ranks=2))
    assert [code for code, _, _ in told] == [1, 1], told
    for _, _, said in told:
        assert re.search(r"step \d+ of epoch \d+ ended \d+ ranks one after another, the last: rank [23] ", said), said
    assert "the run cannot go on: node 1 (node1, 10.213.77.2, ranks 2, 3): step " in told[0][2]
    assert "HINT: resuming will not help" in told[0][2]
    assert len(listed(tmp_path / "run" / "snapshots")) == 1


def test_an_exception_of_a_rank_that_is_no_exchanger_ends_the_ranks_of_all_machines_with_it(tmp_path):
    with Net(2) as net:
        told = ends(net.ranks((1, 2), [*TRAIN, "--out", "run"], tmp_path, FRAIL="raises"))
    assert [code for code, _, _ in told] == [1, 1, 1], told
    assert "unisono: node 1 (node1, 10.213.77.2, ranks 1, 2): rank 2: Traceback" in told[0][2], told
    assert [said.count(RAISED) for _, _, said in told] == [1, 0, 1], "once on each machine"
    assert not (tmp_path / "run" / "snapshots").exists()


def test_ranks_of_machines_that_read_other_data_under_one_name_are_refused(tmp_path):
    for rank in range(2):
        (tmp_path / f"node{rank}").mkdir()
        labels = (np.arange(64) + rank) % 2
        np.savez(tmp_path / f"node{rank}" / "d.npz", train_x=np.eye(64, dtype=np.float32), train_y=labels)
    command = ["sh", "-c", 'cd "$(hostname)" && exec "$@"', "sh", *TRAIN[:4], "--data", "d.npz", "--out", "run"]
    with Net(2) as net:
        told = ends(net.ranks((1, 1), command, tmp_path))
    assert [code for code, _, _ in told] == [2, 2], told
    assert "the data of --data d.npz are not the same everywhere: '" in told[0][2], told
    assert not list(tmp_path.glob("*/run"))


@needs_mpi
def test_mpi_ends_all_ranks_with_the_exit_code_of_the_one_that_failed(tmp_path):
    with Net(2) as net:
        [(code, _, said)] = ends([net.mpirun((1, 1), [*TRAIN, "--out", "run"], environment("raises"), tmp_path)])
    assert (code, RAISED in said) == (1, True), said
    assert not (tmp_path / "run" / "snapshots").exists()
