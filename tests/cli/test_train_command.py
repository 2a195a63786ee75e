"""`unisono train` as a user meets it."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from support.cli.edited_network import OPTIONS, REFUSAL, machines
from support.cli.train_command import COMMAND, summary_of, train
from support.needs import needs_mpi4py, needs_torch
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.launch.launcher_commands import mpirun

APART = ["sh", "-c", 'cd "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@"', "sh", *COMMAND]
"""Each rank in a directory of its own, as on machines without a common file system."""


def test_no_argument_trains_on_digits(tmp_path):
    ended = train(cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (run,) = (tmp_path / "runs").iterdir()
    summary = summary_of(run)
    assert summary["test_accuracy"] >= 0.96
    assert summary["status"] == "finished"
    # The contract: whoever reads run directories finds these.
    assert summary.keys() >= {
        "status", "ranks", "nodes", "shards", "strategy", "allreduce", "transport", "engine", "precision", "model",
        "data", "epochs", "steps", "global_batch", "samples", "train_loss", "train_accuracy", "test_loss",
        "test_accuracy", "train_s", "wall_s", "samples_per_s", "compute_s", "sync_s", "first_sync_s", "weights_sha256",
        "takeovers", "restarts", "resumed_from", "energy_j", "energy_source", "peak_memory_bytes", "stopped_early",
        "version", "machine",
    }  # fmt: skip
    assert summary["peak_memory_bytes"] > 10**7
    assert "8 shards: same bits on 1-8 ranks" in ended.stdout
    assert f"{100 * summary['test_accuracy']:.2f} %" in ended.stdout
    assert {path.name for path in run.iterdir()} == {
        "recipe.toml", "summary.json", "metrics.jsonl", "ranks.csv", "sync_time.csv", "contributions.csv", "loss.png",
        "weights.safetensors", "energy.json", "utilisation.csv", ".lock",
    }  # fmt: skip
    assert summary["energy_source"] in ("estimate", "rapl")
    assert summary["energy_j"] > 0
    assert "Energy: " in ended.stdout


def test_the_recipe_that_was_written_gives_the_same_run(tmp_path):
    first = train("--ranks", "3", "--epochs", "2", "--dropout", "0.1", "--out", "one", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    again = train("one/recipe.toml", "--ranks", "1", "--out", "two", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    one, two = summary_of(tmp_path / "one"), summary_of(tmp_path / "two")
    assert one["weights_sha256"] == two["weights_sha256"]
    assert (one["ranks"], two["ranks"]) == (3, 1)


def test_r1_put_right(tmp_path):
    ended = train("r1", "--out", "run", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    run = tmp_path / "run"
    losses = [json.loads(line)["train_loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert losses == sorted(losses, reverse=True)  # it falls
    assert losses[-1] == pytest.approx(0.01, rel=0.2)  # to the noise floor: 0.1 squared
    lines = [line for line in ended.stdout.splitlines() if line.startswith("Epoch ")]
    assert [line.split(":")[0] for line in lines] == [f"Epoch {e}, rank {r}" for e in range(1, 11) for r in range(4)]
    told = (run / "contributions.csv").read_text().splitlines()
    assert len(told) == len(set(told)) == 40
    for epoch in range(10):
        for column in (2, 3):
            values = [
                float(line.split(", ")[column].split("= ")[1].rstrip("%")) for line in told[4 * epoch : 4 * epoch + 4]
            ]
            assert sum(values) == pytest.approx(100, abs=0.05)
    assert (run / "sync_time.csv").read_text().splitlines()[0] == "Epoch, Sync Time (s)"


@needs_mpi4py
def test_r1_under_mpirun(tmp_path):
    arguments = ["r1", "--transport", "mpi", "--allreduce", "native", "--out", "run", "--ranks", "4"]
    ended = train(*arguments, cwd=tmp_path, command=mpirun(4, COMMAND), environment=mpi_environment())
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("epoch 10/10") == 1  # one rank speaks
    assert "has no effect" not in ended.stdout
    summary = summary_of(tmp_path / "run")
    assert (summary["transport"], summary["allreduce"], summary["ranks"]) == ("mpi", "native", 4)
    assert summary["train_loss"] == pytest.approx(0.01, rel=0.2)


@needs_mpi4py
def test_the_arena_under_mpirun_gives_the_bits_of_the_own_launcher(tmp_path):
    arguments = ["--epochs", "2", "--model", "bn-mlp"]
    assert train(*arguments, "--out", "one", cwd=tmp_path).returncode == 0
    arguments += ["--out", "two", "--ranks", "2"]
    ended = train(*arguments, cwd=tmp_path, command=mpirun(3, COMMAND), environment=mpi_environment())
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall(r"Note: --ranks 2 has no effect: .+ started 3 ranks\.", ended.stdout)) == 1
    one, two = summary_of(tmp_path / "one"), summary_of(tmp_path / "two")
    assert one["weights_sha256"] == two["weights_sha256"]


@needs_mpi4py
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there are no two cores to bind two ranks to")
def test_ranks_that_mpirun_bound_to_a_core_each_have_both_together(tmp_path):
    bound = ["core" if word == "none" else word for word in mpirun(2, COMMAND)]
    if "core" not in bound:
        pytest.skip("this mpirun is not Open MPI's")
    ended = train("--epochs", "1", "--out", "run", cwd=tmp_path, command=bound, environment=mpi_environment())
    assert ended.returncode == 0, ended.stderr
    assert summary_of(tmp_path / "run")["machine"]["cores"] == 2
    assert re.search(r"\b2 cores\b", ended.stdout), "in the line that a run opens with"


@needs_mpi4py
def test_a_mistake_under_mpirun_is_said_once(tmp_path):
    for arguments in (["--data", "digitz"], ["--shards", "1"]):
        ended = train(*arguments, cwd=tmp_path, command=mpirun(2, COMMAND), environment=mpi_environment())
        assert ended.returncode == 2
        assert ended.stderr.count("HINT") == 1, ended.stderr
        assert "Traceback" not in ended.stderr
    assert not (tmp_path / "runs").exists()


OWN_DATA = """
import numpy as np
import helper

def make():
    x, y = np.ones((64, 4), np.float32), np.arange(64) % 2
    return {"train_x": x, "train_y": y, "test_x": x, "test_y": y}
"""


@needs_mpi4py
@needs_torch
def test_ranks_of_mpirun_that_have_read_different_networks_are_refused(tmp_path):
    machines(tmp_path)
    ended = train(*OPTIONS, "--epochs", "1", cwd=tmp_path, command=mpirun(2, APART), environment=mpi_environment())
    assert (ended.returncode, REFUSAL in ended.stderr) == (2, True), ended.stderr


@needs_mpi4py
def test_ranks_of_mpirun_whose_own_code_differs_are_refused(tmp_path):
    for place, width in (("0", 8), ("1", 9)):  # machines without a common file system
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.py").write_text(OWN_DATA)
        (tmp_path / place / "helper.py").write_text(f"width = {width}\n")
    arguments = ["--data", "mine.py:make", "--epochs", "1"]
    ended = train(*arguments, cwd=tmp_path, command=mpirun(2, APART), environment=mpi_environment())
    assert ended.returncode == 2, ended.stderr
    assert "the code of --data mine.py:make is not the same everywhere: " in ended.stderr
    assert ended.stderr.count("HINT") == 1
    assert not list(tmp_path.glob("*/runs"))


@needs_torch
def test_gloo_by_the_own_launcher_and_under_torchrun(tmp_path):
    arguments = ["--transport", "gloo", "--allreduce", "ring", "--epochs", "2"]
    ended = train(*arguments, "--out", "one", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "unisono"]
    environment = child_environment(threads=1)
    ended = train("train", *arguments, "--out", "two", cwd=tmp_path, command=torchrun, environment=environment)
    assert ended.returncode == 0, ended.stderr
    one, two = summary_of(tmp_path / "one"), summary_of(tmp_path / "two")
    assert one["weights_sha256"] == two["weights_sha256"]
    assert one["transport"] == two["transport"] == "gloo"


@needs_torch
def test_a_rank_of_torchrun_that_does_not_come_is_named_after_the_time_to_join(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    without = [*torchrun, "sh", "-c", '[ "$RANK" = 1 ] || exec "$@"', "sh", *COMMAND]
    arguments = ["--transport", "gloo", "--join-timeout", "1"]
    ended = train(*arguments, cwd=tmp_path, command=without, environment=child_environment(threads=1))
    assert ended.returncode
    assert "rank 0: after 1 s rank 1 of 2 had not come" in ended.stderr


def test_a_run_that_diverges_says_so_and_keeps_the_last_good_weights(tmp_path):
    arguments = ["--model", "linear", "--data", "synthetic:regression,rows=100,features=3", "--optimizer", "sgd"]
    ended = train(*arguments, "--lr", "100", "--out", "run", cwd=tmp_path)
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert "the loss became" in ended.stderr
    assert summary_of(tmp_path / "run")["status"] == "failed"
    (epoch,) = re.findall(r"the weights of epoch (\d+) are kept", ended.stderr)
    epochs = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(epochs) == int(epoch) >= 1
    assert all(np.isfinite(array).all() for array in load_file(tmp_path / "run" / "weights.safetensors").values())


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_nothing_survives_an_interrupted_run(tmp_path, signum):
    command = subprocess.Popen(
        [*COMMAND, "--epochs", "1000000", "--ranks", "3", "--out", "run"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    while not command.stdout.readline().startswith("epoch 3/"):
        pass
    ranks = psutil.Process(command.pid).children(recursive=True)
    assert len(ranks) == 3
    os.killpg(command.pid, signum) if signum == signal.SIGINT else command.send_signal(signum)
    _, errors = command.communicate(timeout=30)
    assert psutil.wait_procs(ranks, timeout=10)[1] == []
    assert command.returncode == (75 if signum == signal.SIGINT else -signum)
    assert "Traceback" not in errors
    assert ("unisono train --resume" in errors) == (signum == signal.SIGINT)
