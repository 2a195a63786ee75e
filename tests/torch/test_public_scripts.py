"""Scripts as people publish them, with one word changed: the bits of gloo under each launcher, also after a restart."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from support.paths import TESTS
from support.ports import free_port

SCRIPTS = TESTS / "support" / "public_scripts"
EPOCHS = {"multinode": ["50", "10"], "char_gpt": ["--epochs", "3"]}
FEWER_EPOCHS = {"multinode": ["17", "5"], "char_gpt": ["--epochs", "1"]}
LAUNCH = ["-P", "-m", "unisono", "launch", "--ranks", "2"]
TORCHRUN = ["-m", "torch.distributed.run"]
STANDALONE = [*TORCHRUN, "--standalone", "--nproc-per-node", "2"]


def script(folder: Path, name: str, backend: str = "unisono", more: str = "") -> str:
    """A copy with this backend. more: lines of the test's own, before the script begins."""
    text = (SCRIPTS / f"{name}.py").read_text()
    assert text.count("gloo") == text.count('init_process_group(backend="gloo")') == 1
    path = folder / f"{name}_{backend}.py"
    main = 'if __name__ == "__main__":'
    path.write_text(text.replace("gloo", backend).replace(main, more + main))
    return str(path)


def said(folder: Path, *commands: list[str]) -> str:
    """What commands print that run together, until all have ended well."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    started = [
        subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for command in commands
    ]  # fmt: skip
    try:
        texts = [process.communicate(timeout=110)[0] for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()  # launchers then end their ranks
                process.communicate(timeout=60)
    assert [process.returncode for process in started] == [0] * len(started), "\n".join(texts)[-5000:]
    return "".join(texts)


def final(folder: Path, name: str, snapshot: str) -> str:
    """The sha256 of the last weights."""
    found = torch.load(folder / snapshot, weights_only=True)
    assert found["epochs_run"] == {"multinode": 50, "char_gpt": 3}[name]
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in found["model"].values())).hexdigest()


@pytest.fixture(scope="module")
def gloo(tmp_path_factory):
    """gloo(name): how the script ends as it was written."""
    known: dict[str, str] = {}

    def weights(name: str) -> str:
        if name not in known:
            folder = tmp_path_factory.mktemp("gloo")
            said(folder, [*LAUNCH, script(folder, name, "gloo"), *EPOCHS[name], "--snapshot", "end.pt"])
            known[name] = final(folder, name, "end.pt")
        return known[name]

    return weights


@pytest.mark.parametrize("name", EPOCHS)
def test_one_word_changed_gives_the_bits_of_gloo(tmp_path, name, gloo):
    said(tmp_path, [*LAUNCH, script(tmp_path, name), *EPOCHS[name], "--snapshot", "end.pt"])
    assert final(tmp_path, name, "end.pt") == gloo(name)


@pytest.mark.parametrize("name", EPOCHS)
def test_an_interrupted_job_goes_on_under_torchrun_and_ends_with_the_same_bits(tmp_path, name, gloo):
    path, options = script(tmp_path, name), ["--snapshot", "end.pt"]
    first = said(tmp_path, [*LAUNCH, path, *FEWER_EPOCHS[name], *options])
    assert "goes on after" not in first
    then = said(tmp_path, [*STANDALONE, path, *EPOCHS[name], *options])
    assert f"rank 0 goes on after epoch {17 if name == 'multinode' else 1}\n" in then
    assert final(tmp_path, name, "end.pt") == gloo(name)


def test_torchrun_on_two_machines(tmp_path, gloo):
    """Two agents, as if each were on a machine of its own."""
    at = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1"]
    work = [script(tmp_path, "multinode"), *EPOCHS["multinode"], "--snapshot", "end.pt"]
    agents = [
        [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", *at, "--rdzv-conf", f"is_host={is_host}", *work]
        for is_host in ("1", "0")
    ]
    said(tmp_path, *agents)
    assert final(tmp_path, "multinode", "end.pt") == gloo("multinode")


KILLED_ONCE = """
def run_batch_or_die(trainer, inputs, targets, run_batch=Trainer.run_batch, marker=Path("killed")):
    if trainer.rank == 1 and trainer.epochs_run == 23 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), 9)
    return run_batch(trainer, inputs, targets)


Trainer.run_batch = run_batch_or_die


"""


def test_torchrun_starts_a_job_again_whose_rank_was_killed(tmp_path, gloo):
    path = script(tmp_path, "multinode", more=KILLED_ONCE)
    told = said(tmp_path, [*STANDALONE, "--max-restarts", "1", path, *EPOCHS["multinode"], "--snapshot", "end.pt"])
    assert (tmp_path / "killed").exists()
    assert "rank 0 goes on after epoch 20\n" in told
    assert final(tmp_path, "multinode", "end.pt") == gloo("multinode")
