"""Studies whose runs are jobs, on a real SLURM: a grid of nodes x ranks, in one table."""

import json
import sys

import pytest

from support.cluster.slurm_jobs import can_start
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe

JOBS = ["--slurm", "--mem", "500M", "--poll-s", "0.2", "--repeat", "1"]


@pytest.mark.timeout(240)
@pytest.mark.skipif(not can_start("srun"), reason="mpi4py, mpirun or MPI's library is not installed")
def test_a_grid_of_nodes_and_ranks(mailbox, tmp_path):
    code, out, err = mailbox.unisono("scale", "--epochs", "1", "--grid", "1x1,2x1", "--out", "study", *JOBS)
    assert code == 0, err
    rows = json.loads((mailbox.place / "study" / "scale.json").read_text())
    assert [(row["grid"], row["world"], row["same_bits"]) for row in rows] == [("1x1", 1, True), ("2x1", 2, True)]
    alone = run_recipe(Recipe.from_options(epochs=1, ranks=1, out=str(tmp_path / "alone")))
    assert {row["weights_sha256"] for row in rows} == {alone["weights_sha256"]}
    lines = (mailbox.place / "study" / "cells.jsonl").read_text().splitlines()
    nodes = [json.loads(line)["summary"]["nodes"] for line in lines]
    assert nodes == [1, 2]
    assert "Bits: one weights_sha256 in all 2 runs" in out


@pytest.mark.timeout(240)
@pytest.mark.skipif(not can_start("torchrun"), reason="torch is not installed")
def test_strategies_on_layouts_and_a_cell_that_fails(mailbox):
    """As the recipe r4 is compared: a batch per rank, every strategy on every layout. Here one layout is too large."""
    over = ["--over", "strategy=ddp", "--grid", "2x1,3x1", "--launcher", "torchrun"]
    small = ["r4", "--epochs", "1", "--data", "synthetic:classes=4,rows=500,features=16", "--out", "study"]
    code, out, err = mailbox.unisono("compare", *small, *over, *JOBS)
    assert code == 0, err
    rows = json.loads((mailbox.place / "study" / "compare.json").read_text())
    assert [(row["strategy"], row["grid"]) for row in rows] == [
        ("ddp", "2x1"),
        ("ddp", "3x1"),
    ]
    for row in rows:
        if row["grid"] == "3x1":
            assert "the job needs 3 nodes" in row["reason"]
        else:
            assert row["global_batch"] == 32 * int(row["grid"][0]), row
            assert 0 < row["test_accuracy"] <= 1
    assert "the job needs 3 nodes" in out


@pytest.mark.parametrize(
    ("transport", "launcher", "options", "ranks"),
    [
        ("mpi", "srun", ["--mpi=pmix"], "0 on n1, 1 on n2"),
        ("gloo", "torchrun", [], "0 on n1 (10.9.0.1), 1 on n2 (10.9.0.2)"),
    ],
)
def test_the_doctor_as_tasks_of_a_step(mailbox, transport, launcher, options, ranks):
    if not can_start(launcher):
        pytest.skip(f"what {transport} needs is not installed")
    doctor = [sys.executable, "-m", "unisono", "doctor", "--nodes"]
    doctor += ["--transport", "gloo"] if transport == "gloo" else []
    told = mailbox.slurm.call(["srun", "-N2", "-n2", *options, *doctor], cwd=mailbox.place)
    assert told.returncode == 0, told.stderr
    assert f"ok       ranks             2 over {transport}: {ranks}" in told.stdout
    assert f"All 2 ranks on 2 nodes reach each other over {transport}, between nodes in " in told.stdout
