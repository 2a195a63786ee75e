"""Several machines, played by network name spaces: the bits of one, whatever ranks are where, over gloo and MPI."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.cluster.namespaces import REASON, Net, ends
from support.needs import needs_mpi, needs_torch
from support.paths import worker
from unisono.environment.os_environ import child_environment
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.storage.resume import recipe_of

pytestmark = [pytest.mark.skipif(bool(REASON), reason=REASON), pytest.mark.timeout(300)]

LAYOUTS = [(4,), (2, 2), (1, 2, 3)]
"""Ranks of each machine; others are tried without a network in strategies/machines/test_machines_bits.py."""
WORKER = worker("layout")[1]
NUMPY = {"model": "bn-mlp", "epochs": 2, "optimizer": "adam", "lr": 0.01, "dropout": 0.1, "clip": 1.0}
TORCH = {"model": "cnn:4", "epochs": 1, "batch_size": 128, "engine": "torch"}
CASES = [NUMPY, TORCH] if find_spec("torch") else [NUMPY]


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> list[str]:
    """Of one rank."""
    hashes = []
    for number, case in enumerate(CASES):
        # In a process of its own: torch starts threads, and this one forks later.
        out = tmp_path_factory.mktemp("alone") / str(number)
        code = "import sys, json; from unisono.runs.lifecycle import run_recipe; from unisono.recipe import Recipe; "
        code += "run_recipe(Recipe.from_options(**json.loads(sys.argv[1])))"
        given = json.dumps(case | {"out": str(out)})
        subprocess.run([sys.executable, "-c", code, given], env=child_environment(1), check=True, capture_output=True)
        hashes.append(json.loads((out / "summary.json").read_text())["weights_sha256"])
    return hashes


def over_gloo(net: Net, layout: tuple[int, ...], cases: list[dict], folder: Path) -> list[subprocess.Popen[str]]:
    return net.ranks(layout, [sys.executable, WORKER, json.dumps(cases)], folder)


def over_mpi(net: Net, layout: tuple[int, ...], cases: list[dict], folder: Path) -> list[subprocess.Popen[str]]:
    return [net.mpirun(layout, [sys.executable, WORKER, json.dumps(cases)], child_environment(1), folder)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "x".join(map(str, layout)))
@pytest.mark.parametrize(
    "launch", [pytest.param(over_gloo, marks=needs_torch), pytest.param(over_mpi, marks=needs_mpi)]
)
def test_any_layout_has_the_bits_of_one_rank(launch, layout, expected, tmp_path):
    with Net(len(layout)) as net:
        told = ends(launch(net, layout, CASES, tmp_path))
    assert [code for code, _, _ in told] == [0] * len(told), told
    said = json.loads(told[0][1].splitlines()[-1])
    firsts = [sum(layout[:node]) for node in range(len(layout))]
    assert said["nodes"] == [first for first, count in zip(firsts, layout, strict=True) for _ in range(count)]
    assert [found[0] for found in said["found"]] == expected
    if layout == (2, 2):  # elsewhere a machine's shards are several nodes of the tree, or there are more machines
        assert all(sent_bytes <= 2.1 * parameter_bytes for _, sent_bytes, parameter_bytes in said["found"])


TRAIN = [
    sys.executable, "-m", "unisono", "train", "--model", "bn-mlp", "--epochs", "30", "--slow", "0:100", "--out", "run",
]  # fmt: skip


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> str:
    """What TRAIN ends with."""
    out = str(tmp_path_factory.mktemp("quiet") / "run")
    return run_recipe(Recipe.from_options(model="bn-mlp", epochs=30, ranks=1, out=out))["weights_sha256"]


def training(net: Net, layout: tuple[int, ...], folder: Path) -> list[subprocess.Popen[str]]:
    """Ranks of which the first has told of its first epochs."""
    jobs = net.ranks(layout, TRAIN, folder)
    assert jobs[0].stdout is not None
    while not (line := jobs[0].stdout.readline()).startswith("epoch 2/"):
        assert line
    return jobs


def check_kept(told: list[tuple[int, str, str]], lost: str, run: Path, ranks: int, quiet: str) -> None:
    """Those who are left say who was lost, and the run can be gone on with on so many ranks, to the bits of a quiet
    one."""
    assert [code for code, _, _ in told] == [75, 75], told
    assert f"the run cannot go on: {lost} was lost" in told[0][2], told
    assert re.search(rf"HINT: go on with unisono train --resume ({re.escape(str(run))}|run)\n", told[0][2]), told
    resumed = run_recipe(recipe_of(str(run), {"ranks": ranks, "slow": ""}))
    assert resumed["weights_sha256"] == quiet
    assert resumed["resumed_from"]


@needs_torch
def test_a_node_that_is_lost_is_named_and_what_was_reached_is_kept(quiet, tmp_path):
    with Net(2) as net:
        jobs = training(net, (2, 1), tmp_path)
        net.power_off(1)
        told = ends(jobs[:2])
    check_kept(told, "node 1 (node1, 10.213.77.2, rank 2)", tmp_path / "run", 1, quiet)


@needs_torch
def test_the_first_node_is_lost_and_the_first_rank_of_another_one_saves_the_run(quiet, tmp_path):
    with Net(2) as net:
        jobs = training(net, (1, 2), tmp_path)
        net.power_off(0)
        told = ends(jobs[1:])
    check_kept(told, "node 0 (node0, 10.213.77.1, rank 0)", tmp_path / "run", 2, quiet)


@needs_mpi
@needs_torch
@pytest.mark.parametrize("names", ["nowhere", "to themselves"])
def test_ranks_of_mpi_make_torchs_group_wherever_their_names_resolve_to(names, tmp_path):
    train = [sys.executable, "-m", "unisono", "train", "--strategy", "ddp", "--epochs", "1", "--out", "run"]
    with Net(2) as net:
        for node in range(2):
            if names == "to themselves":
                net.name_hosts(node, f"127.0.0.1 localhost node{node}\n")
        [(code, _, said)] = ends([net.mpirun((1, 1), train, child_environment(1), tmp_path)], 90.0)
    assert code == 0, said
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["ranks"], summary["nodes"], summary["strategy"]) == (2, 2, "ddp")
