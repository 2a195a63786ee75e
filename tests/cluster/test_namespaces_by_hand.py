"""`unisono train` started by hand on each machine: same bits, take-over within a machine, lost machines, mistakes."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from support.cluster.namespaces import REASON, Net, ends
from support.needs import needs_torch
from unisono.environment.os_environ import child_environment
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.storage.resume import recipe_of

pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=REASON),
    needs_torch,
    pytest.mark.timeout(300),
]

SHORT = ["--model", "bn-mlp", "--epochs", "3"]
EPOCHS = 30
LONG = ["--model", "bn-mlp", "--epochs", str(EPOCHS)]
SLOWLY = ["--slow", "0:100"]
"""It would be over before it is struck. Whoever goes on with it does so without."""
LESS_SLOWLY = ["--slow", "0:30"]
"""Where it goes on by itself to its end."""


def begin(net: Net, node: int, nodes: int, folder: Path, *more: str, main: str = "") -> subprocess.Popen[str]:
    """The command on one machine; main: what the first one is called, if not by its address."""
    train = [sys.executable, "-m", "unisono", "train", "--num-nodes", str(nodes), "--node-id", str(node)]
    return net.start(node, [*train, "--main-address", main or net.address(0), *more], child_environment(1), folder)


def start(net: Net, layout: tuple[int, ...], folder: Path, *more: str) -> list[subprocess.Popen[str]]:
    """One command on each machine."""
    return [
        begin(net, node, len(layout), folder, "--ranks-per-node", str(count), "--out", "run", *more)
        for node, count in enumerate(layout)
    ]


def until(job: subprocess.Popen[str], beginning: str) -> None:
    """Until it has said a line that begins like this."""
    assert job.stdout is not None
    while line := job.stdout.readline():
        if line.startswith(beginning):
            return
    raise AssertionError(job.stderr.read() if job.stderr else "")


def until_knocking(net: Net, *nodes: int) -> None:
    """Until these machines look for the first one: by then they have imported torch."""
    late = time.monotonic() + 60
    while not all(map(net.in_vain, nodes)):
        assert time.monotonic() < late
        time.sleep(0.1)


def hash_of(run: Path) -> str:
    return json.loads((run / "summary.json").read_text())["weights_sha256"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[int, str]:
    """Of one rank, by epochs."""
    found = {}
    for epochs in (3, EPOCHS):
        out = tmp_path_factory.mktemp("alone") / str(epochs)
        found[epochs] = run_recipe(Recipe.from_options(model="bn-mlp", epochs=epochs, ranks=1, out=str(out)))[
            "weights_sha256"
        ]
    return found


def ranks_of(job: subprocess.Popen[str]) -> list[psutil.Process]:
    """The ranks that a machine's supervisor forked, by age; its exchanger is the oldest child, and no rank."""
    supervisor = next(
        process
        for process in [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]
        if "train" in process.cmdline() and process.parent() is not None and process.children()
        and all("train" in child.cmdline() for child in process.children())
    )  # fmt: skip
    children = sorted(supervisor.children(), key=lambda process: (process.create_time(), process.pid))
    return children[1:]


@pytest.mark.parametrize("layout", [(1, 1, 1, 1), (1, 2, 3)], ids=str)
def test_any_layout_has_the_bits_of_one_rank(layout, expected, tmp_path):
    """(2, 2) is below; others are tried without a network in strategies/machines/test_machines_bits.py."""
    with Net(len(layout)) as net:
        told = ends(start(net, layout, tmp_path, *SHORT))
    assert [code for code, _, _ in told] == [0] * len(layout), told
    assert hash_of(tmp_path / "run") == expected[3]
    assert [said for _, said, _ in told[1:]] == [""] * (len(layout) - 1), "only the first machine speaks"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["ranks"], summary["nodes"], summary["transport"]) == (sum(layout), len(layout), "gloo")


def test_a_rank_that_dies_is_taken_over_on_its_machine(expected, tmp_path):
    with Net(2) as net:
        jobs = start(net, (2, 2), tmp_path, *LONG, *LESS_SLOWLY)
        until(jobs[0], "epoch 2/")
        ranks_of(jobs[1])[0].kill()
        until(jobs[0], "epoch 6/")
        ranks_of(jobs[0])[1].kill()
        told = ends(jobs)
    assert [code for code, _, _ in told] == [0, 0], told
    assert hash_of(tmp_path / "run") == expected[EPOCHS]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["takeovers"] == 1
    assert "rank 2 was killed by SIGKILL" in told[1][2]


def test_a_signal_to_one_machine_halts_all_and_the_run_goes_on_elsewhere(expected, tmp_path):
    with Net(2) as net:
        jobs = start(net, (1, 2), tmp_path, *LONG, *SLOWLY)
        until(jobs[0], "epoch 2/")
        ranks_of(jobs[1])[0].parent().send_signal(signal.SIGTERM)
        told = ends(jobs)
        assert [code for code, _, _ in told] == [75, 75], told
        assert "HINT: go on with unisono train --resume run" in told[0][2]
        more = ["--ranks", "1", *LONG, "--slow", ""]
        told = ends([begin(net, 0, 2, tmp_path, *more, "--resume", "run"), begin(net, 1, 2, tmp_path, *more)])
    assert [code for code, _, _ in told] == [0, 0], told
    assert hash_of(tmp_path / "run") == expected[EPOCHS]


@pytest.mark.parametrize("how", ["power", "cable"])
def test_a_machine_that_is_lost_is_named_and_the_rest_goes_on_alone(how, expected, tmp_path):
    with Net(2) as net:
        jobs = start(net, (2, 1), tmp_path, *LONG, *SLOWLY)
        until(jobs[0], "epoch 2/")
        if how == "cable":
            net.unplug(1)  # nobody is told: connections are not closed
        net.power_off(1)
        code, _, said = ends(jobs[:1])[0]
    assert code == 75, said
    assert re.search(r"the run cannot go on: node 1 \(node1, 10\.213\.77\.2, rank 2\) was lost", said), said
    assert "HINT: go on with unisono train --resume run" in said
    run_recipe(recipe_of(str(tmp_path / "run"), {"ranks": 2, "slow": ""}))
    assert hash_of(tmp_path / "run") == expected[EPOCHS]


@pytest.mark.parametrize("layout", [(1, 2), (1, 1, 1)], ids=str)
def test_the_first_machine_is_lost_and_another_one_saves_the_run(layout, expected, tmp_path):
    with Net(len(layout)) as net:
        jobs = start(net, layout, tmp_path, *LONG, *SLOWLY)
        until(jobs[0], "epoch 2/")
        net.power_off(0)
        told = ends(jobs[1:])
    assert [code for code, _, _ in told] == [75] * len(told), told
    saved = [said for _, _, said in told if re.search(r"the run cannot go on: node 0 \(node0, .*\) was lost", said)]
    assert any("HINT: go on with unisono train --resume " in said for said in saved), told
    resumed = run_recipe(recipe_of(str(tmp_path / "run"), {"ranks": 2, "slow": ""}))
    assert resumed["weights_sha256"] == expected[EPOCHS]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [*range(1, EPOCHS + 1)]


def test_the_first_machine_is_lost_and_its_run_directory_with_it(tmp_path):
    with Net(2) as net:
        jobs = []
        for node in range(2):
            (tmp_path / str(node)).mkdir()
            jobs.append(begin(net, node, 2, tmp_path / str(node), "--ranks", "1", *LONG, *SLOWLY))
        until(jobs[0], "epoch 2/")
        shutil.move(tmp_path / "0" / "runs", tmp_path / "0" / "not seen")
        net.power_off(0)
        code, _, said = ends(jobs[1:])[0]
    assert (code, "its run directory is not here, or the run was resumed elsewhere" in said) == (75, True), said
    assert list((tmp_path / "1").iterdir()) == []


def test_a_cable_that_is_out_for_a_second_costs_a_second(expected, tmp_path):
    with Net(2) as net:
        jobs = start(net, (1, 1), tmp_path, *LONG, *LESS_SLOWLY)
        until(jobs[0], "epoch 2/")
        net.unplug(1)
        subprocess.run(["sleep", "1"], check=True)
        net.plug(1)
        told = ends(jobs)
    assert [code for code, _, _ in told] == [0, 0], told
    assert hash_of(tmp_path / "run") == expected[EPOCHS]


def test_whoever_does_not_come_is_named(tmp_path):
    with Net(2) as net:
        other = begin(net, 1, 3, tmp_path, *SHORT)
        until_knocking(net, 1)
        lone = begin(net, 0, 3, tmp_path, "--join-timeout", "5", *SHORT)
        told = ends([lone, other])
    assert [code for code, _, _ in told] == [2, 2], told
    assert re.search(r"node 0: after 5 s node 2 of 3 had not come; here: node 0 on node0, 1 on node1", told[0][2])
    assert "node 2" in told[1][2]
    assert not (tmp_path / "runs").exists()


def test_machines_that_come_and_do_not_reach_each_other_are_named_in_time(tmp_path):
    with Net(3) as net:
        net.forbid(1, 2)
        others = [begin(net, node, 3, tmp_path, *SHORT, "--out", "run", "--join-timeout", "25") for node in (1, 2)]
        until_knocking(net, 1, 2)
        first = begin(net, 0, 3, tmp_path, *SHORT, "--out", "run", "--join-timeout", "10")
        told = ends([first, *others])
    assert [code for code, _, _ in told] == [2, 2, 2], told
    errors = [error for _, _, error in told]
    assert any(net.address(1) in error and net.address(2) in error for error in errors[1:]), errors
    assert any("ports above 1023 must be open" in error for error in errors), errors
    assert not any("said nothing" in error for error in errors), errors
    assert not (tmp_path / "run").exists()


def test_mistakes_are_told_on_every_machine(tmp_path):
    places = tmp_path / "first", tmp_path / "second"
    for place in places:
        place.mkdir()

    def both(*more: list[str]) -> list[tuple[int, str, str]]:
        return ends([begin(net, node, 2, places[node], *words) for node, words in enumerate(more)])

    with Net(2) as net:
        for code, _, said in both([*SHORT], [*SHORT, "--lr", "0.3"]):
            assert code == 2
            assert "the recipe is not the same everywhere:\n  --lr: 0.01 on node 0 (node0), 0.3 on node 1" in said, said
        rows = np.zeros((64, 4), np.float32)
        np.savez(places[0] / "own.npz", train_x=rows, train_y=np.arange(64) % 2, test_x=rows, test_y=np.arange(64) % 2)
        told = both(*[["--data", "own.npz"]] * 2)
        assert [code for code, _, _ in told] == [2, 2], told
        assert "own.npz" in told[1][2]
        assert re.search(r"node 1: .*own\.npz", told[0][2]), told
        assert not (places[0] / "runs").exists(), "nothing is left of a run that did not begin"


def test_names_of_the_first_machine(expected, tmp_path):
    """Debian gives a machine's own name 127.0.1.1, which does no harm there."""
    with Net(2) as net:
        net.name_hosts(0, "127.0.0.1 localhost\n127.0.1.1 first\n")
        net.name_hosts(1, "127.0.0.1 localhost\n10.213.77.1 first\n")
        more = ["--ranks", "1", *SHORT, "--out", "run"]
        told = ends([begin(net, node, 2, tmp_path, *more, main="first") for node in range(2)])
    assert [code for code, _, _ in told] == [0, 0], told
    assert hash_of(tmp_path / "run") == expected[3]


def test_an_interface_that_is_not_there_is_told(tmp_path):
    words = ["--num-nodes", "2", "--node-id", "0", "--main-address", "127.0.0.1", "--interface", "wlan7"]
    ended = subprocess.run(
        [sys.executable, "-m", "unisono", "train", *words],
        env=child_environment(1), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "--interface wlan7: there is none of that name on " in ended.stderr, ended.stderr
