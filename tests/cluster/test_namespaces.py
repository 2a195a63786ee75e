"""Several machines, played by network name spaces: the bits of one, whatever ranks are where, over gloo and MPI."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from unisono.cli.running import run_recipe
from unisono.launch.commands import find_program
from unisono.launch.environments import child_environment, mpi_environment
from unisono.recipe import Recipe
from unisono.train.resuming import recipe_of

sys.path.insert(0, str(Path(__file__).parent))
from namespaces import REASON, Net, ends

pytestmark = [pytest.mark.skipif(bool(REASON), reason=REASON), pytest.mark.timeout(300)]
with_mpi = pytest.mark.skipif(
    not find_spec("mpi4py") or find_program("mpirun") is None, reason="mpi4py or mpirun is not installed"
)
with_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")

HERE = Path(__file__).parent
LAYOUTS = [(4,), (2, 2), (3, 1), (1, 1, 1, 1), (1, 2, 3)]
WORKER = str(HERE / "layout_worker.py")
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
        code = "import sys, json; from unisono.cli.running import run_recipe; from unisono.recipe import Recipe; "
        code += "run_recipe(Recipe(**json.loads(sys.argv[1])))"
        given = json.dumps(case | {"out": str(out)})
        subprocess.run([sys.executable, "-c", code, given], env=child_environment(1), check=True, capture_output=True)
        hashes.append(json.loads((out / "summary.json").read_text())["weights_sha256"])
    return hashes


def over_gloo(net: Net, layout: tuple[int, ...], cases: list[dict], folder: Path) -> list[subprocess.Popen[str]]:
    return ranks(net, layout, [sys.executable, WORKER, json.dumps(cases)], folder)


def ranks(net: Net, layout: tuple[int, ...], command: list[str], folder: Path) -> list[subprocess.Popen[str]]:
    """Ranks that torch's variables tell who they are; torchrun would set the same, and takes seconds more."""
    jobs = []
    for node, count in enumerate(layout):
        for local in range(count):
            rank = sum(layout[:node]) + local
            told = {"RANK": rank, "WORLD_SIZE": sum(layout), "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": count}
            told |= {"MASTER_ADDR": net.address(0), "MASTER_PORT": 29500}
            environment = child_environment(1) | {name: str(value) for name, value in told.items()}
            jobs.append(net.start(node, command, environment, folder))
    return jobs


def over_mpi(net: Net, layout: tuple[int, ...], cases: list[dict], folder: Path) -> list[subprocess.Popen[str]]:
    return by_mpirun(net, layout, [sys.executable, WORKER, json.dumps(cases)], folder)


def by_mpirun(net: Net, layout: tuple[int, ...], command: list[str], folder: Path) -> list[subprocess.Popen[str]]:
    hosts = ",".join(f"{net.address(node)}:{count}" for node, count in enumerate(layout))
    agent = ["--prtemca", "plm_ssh_agent", str(HERE / "launch_agent.sh")]
    mpirun = [find_program("mpirun") or "mpirun", *agent, "--host", hosts, "-n", str(sum(layout)), "--bind-to", "none"]
    environment = mpi_environment(child_environment(1)) | {"NET_NAMES": " ".join(net.names)}
    return [net.start(0, [*mpirun, *command], environment, folder)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "x".join(map(str, layout)))
@pytest.mark.parametrize("launch", [pytest.param(over_gloo, marks=with_torch), pytest.param(over_mpi, marks=with_mpi)])
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


@with_torch
def test_a_node_that_is_lost_is_named_and_what_was_reached_is_kept(tmp_path):
    train = [sys.executable, "-m", "unisono", "train", "--model", "bn-mlp", "--epochs", "30", "--slow", "0:4"]
    with Net(2) as net:
        jobs = ranks(net, (2, 1), [*train, "--out", "run"], tmp_path)
        assert jobs[0].stdout is not None
        while not (line := jobs[0].stdout.readline()).startswith("epoch 2/"):
            assert line
        net.unplug(1)
        net.power_off(1)
        told = ends(jobs[:2])
    assert [code for code, _, _ in told] == [75, 75], told
    assert re.search(r"the run cannot go on: node 1 \(node1, 10\.213\.77\.2, rank 2\) was lost", told[0][2]), told
    assert "HINT: go on with unisono train --resume run" in told[0][2]
    found = [
        run_recipe(recipe) for recipe in (
            recipe_of(str(tmp_path / "run"), {"ranks": 1, "slow": ""}),
            Recipe(model="bn-mlp", epochs=30, ranks=1, out=str(tmp_path / "quiet")),
        )
    ]  # fmt: skip
    assert len({summary["weights_sha256"] for summary in found}) == 1


@with_torch
def test_the_first_node_is_lost_and_the_first_rank_of_another_one_saves_the_run(tmp_path):
    train = [sys.executable, "-m", "unisono", "train", "--model", "bn-mlp", "--epochs", "30", "--slow", "0:4"]
    with Net(2) as net:
        jobs = ranks(net, (1, 2), [*train, "--out", "run"], tmp_path)
        assert jobs[0].stdout is not None
        while not (line := jobs[0].stdout.readline()).startswith("epoch 2/"):
            assert line
        net.power_off(0)
        told = ends(jobs[1:])
    assert [code for code, _, _ in told] == [75, 75], told
    assert re.search(r"the run cannot go on: node 0 \(node0, 10\.213\.77\.1, rank 0\) was lost", told[0][2]), told
    assert "HINT: go on with unisono train --resume " in told[0][2]
    found = [
        run_recipe(recipe) for recipe in (
            recipe_of(str(tmp_path / "run"), {"ranks": 2, "slow": ""}),
            Recipe(model="bn-mlp", epochs=30, ranks=1, out=str(tmp_path / "quiet")),
        )
    ]  # fmt: skip
    assert len({summary["weights_sha256"] for summary in found}) == 1
    assert found[0]["resumed_from"]


@with_mpi
@with_torch
@pytest.mark.parametrize("names", ["nowhere", "to themselves"])
def test_ranks_of_mpi_make_torchs_group_wherever_their_names_resolve_to(names, tmp_path):
    train = [sys.executable, "-m", "unisono", "train", "--strategy", "ddp", "--epochs", "1", "--out", "run"]
    with Net(2) as net:
        for node in range(2):
            if names == "to themselves":
                net.name_hosts(node, f"127.0.0.1 localhost node{node}\n")
        [(code, _, said)] = ends(by_mpirun(net, (1, 1), train, tmp_path), 90.0)
    assert code == 0, said
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["ranks"], summary["nodes"], summary["strategy"]) == (2, 2, "ddp")
