"""`unisono train --num-nodes` on one machine, a process for each: what the second shell says, and what it does not."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unisono
from support.cli.edited_network import OPTIONS, REFUSAL, machines
from support.needs import needs_torch
from support.ports import free_port
from unisono.comm.topology.addresses import connect_error
from unisono.environment.os_environ import child_environment
from unisono.report.html.document import document

pytestmark = needs_torch

TRAIN = [sys.executable, "-m", "unisono", "train", "--epochs", "1"]


@pytest.fixture
def port() -> int:
    """One that is free."""
    return free_port()


def start(folder: Path, node: int, port: int, *more: str) -> "subprocess.Popen[str]":
    where = ["--num-nodes", "2", "--node-id", str(node), "--main-address", "127.0.0.1", "--main-port", str(port)]
    words = [*TRAIN, *where, "--ranks-per-node", "1", *more]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=child_environment(1), cwd=folder, **pipes)


def test_what_both_shells_say(tmp_path, port):
    """The second one whom it joined and how it ended; the first, once, that the energy of all is not known."""
    jobs = [start(tmp_path, node, port, "--out", "run") for node in range(2)]
    told = [job.communicate(timeout=110) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], told
    here, waiting = socket.gethostname(), f"port {port}, for up to 60 s (--join-timeout)"
    assert told[0][1].splitlines() == [f"unisono: node 0: waiting for node 1 at 127.0.0.1, {waiting}"]
    assert told[0][0].startswith("unisono train: mlp:64 on digits")
    assert told[1] == (
        "",
        f"unisono: node 1: waiting for node 0 at 127.0.0.1, {waiting}\n"
        f"unisono: node 1: joined node 0 ({here}, 127.0.0.1), which tells of the run; ranks here: 1 of 2\n"
        f"unisono: node 1: the run has ended; node 0 has it in {tmp_path / 'run'}\n",
    )
    run = unisono.load(tmp_path / "run")
    (line,) = [line for line in told[0][0].splitlines() if "Energy" in line]
    assert line.startswith("Energy: not known (with --num-nodes that of other machines is not gathered;")
    assert line == f"Energy: not known ({run.summary['energy_note']})."
    assert (run.summary["energy_j"], run.summary["energy_source"]) == (None, "none")
    assert document([run]).count("Energy: not known (with --num-nodes") == 1


def test_machines_that_read_other_data_under_one_name_are_refused(tmp_path, port):
    folders = [tmp_path / name for name in ("a", "b")]
    for number, folder in enumerate(folders):
        folder.mkdir()
        np.savez(folder / "d.npz", train_x=np.eye(64, dtype=np.float32), train_y=(np.arange(64) + number) % 2)
    jobs = [start(folder, node, port, "--data", "d.npz", "--out", "run") for node, folder in enumerate(folders)]
    told = [job.communicate(timeout=110)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [2, 2], told
    assert all("the data of --data d.npz are not the same everywhere: '" in said for said in told), told
    assert not any((folder / "run").exists() for folder in folders)


def test_another_secret_is_refused_by_name_and_the_right_machine_can_still_come(tmp_path, port):
    for name in ("right", "wrong"):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(f"the secret of the {name} machine\n")
    with ExitStack() as left:
        jobs = [left.enter_context(start(tmp_path, 0, port, "--out", "run", "--secret-file", "right"))]
        left.callback(jobs[0].kill)
        assert not connect_error("127.0.0.1", port, 60)
        for data in (b"", b"\xff" * 200, b"unisono\n"):
            stranger = left.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            stranger.sendall(data)
        refused = start(tmp_path, 1, port, "--secret-file", "wrong")
        said = refused.communicate(timeout=110)
        assert refused.returncode == 2, said
        assert said[1].splitlines()[1:2] == [
            f"unisono: node 1 on {socket.gethostname()}: refused at 127.0.0.1:{port}: it has another secret than this "
            "machine (here it is from wrong)"
        ]
        assert "HINT: put the secret of the machine that has 127.0.0.1 (usually its file " in said[1]
        jobs.append(start(tmp_path, 1, port, "--secret-file", "right"))
        told = [job.communicate(timeout=110) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], told
    assert [line for line in told[0][1].splitlines() if "refused" in line] == [
        "unisono: node 0: refused 127.0.0.1: it does not speak unisono's protocol",
        f"unisono: node 0: refused 127.0.0.1: ({socket.gethostname()}) it has another secret",
    ]
    assert not any(b"the secret of" in path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())


def test_without_the_first_machine_ours_is_the_only_message(tmp_path, port):
    job = start(tmp_path, 1, port, "--join-timeout", "1")
    out, error = job.communicate(timeout=110)
    assert (job.returncode, out) == (2, "")
    assert error.splitlines() == [
        f"unisono: node 1: waiting for node 0 at 127.0.0.1, port {port}, for up to 1 s (--join-timeout)",
        f"unisono: node 1: no store at 127.0.0.1:{port}: Connection refused, for 1 s",
        "HINT: is node 0 running on that host, and is the port its own? --join-timeout waits longer",
    ]


def test_a_rank_of_torchrun_with_a_wrong_master_says_no_more_than_that(tmp_path, port):
    said = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": 1, "MASTER_PORT": port}
    by_torchrun = {"TORCHELASTIC_RUN_ID": 1, "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
    environment = child_environment(1) | {name: str(value) for name, value in (said | by_torchrun).items()}
    environment["MASTER_ADDR"] = "127.0.0.1"
    words = [*TRAIN, "--join-timeout", "1"]
    ended = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines() == [
        f"unisono: rank 1: no store at 127.0.0.1:{port}: Connection refused, for 1 s",
        "HINT: is rank 0 running on that host, and is the port its own? --join-timeout waits longer",
    ]


def test_a_network_that_is_edited_on_one_machine_while_it_is_waited_for_is_refused(tmp_path, port):
    jobs = [start(place, node, port, *OPTIONS, "--out", "run") for node, place in enumerate(machines(tmp_path))]
    told = [job.communicate(timeout=110)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [2, 2], told
    assert all(REFUSAL in said for said in told), told
