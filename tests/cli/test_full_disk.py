"""A run whose disk has room for the weights of one epoch, and not for the next ones beside them."""

import json
import re
from collections.abc import Callable

import pytest

from support.cli.forked_command import forked
from unisono.storage import fallback_writer, weights
from unisono.storage.snapshots.snapshot import listed
from unisono.storage.weights import load

RUN = ["--model", "mlp:1013", "--data", "synthetic:classes=5,rows=101,features=13,test_rows=29", "--batch-size", "24"]
RUN += ["--epochs", "3", "--ranks", "2"]
WEIGHTS_KIB = 77  # 19252 parameters
pytestmark = pytest.mark.usefixtures("no_price")


@pytest.fixture(autouse=True)
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(fallback_writer, "PATIENCE_S", 0.0)
    monkeypatch.setattr(fallback_writer, "SAFE_PATIENCE_S", 0.0)


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("quiet") / "run"
    ended = forked("train", *RUN, "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    found = json.loads((out / "summary.json").read_text())
    assert found["weights_epoch"] == load(out).epoch == 3
    assert "weights_path" not in found
    return str(found["weights_sha256"])


def test_the_weights_of_the_end_are_kept_on_another_disk(expected, small_disk, tmp_path):
    run = small_disk(2 * WEIGHTS_KIB + 20) / "run"
    (run.parent / "ballast").write_bytes(bytes(30 << 10))
    ended = forked("train", *RUN, "--out", str(run))
    assert ended.returncode == 2
    (copy,) = tmp_path.glob("unisono-kept-*/run/weights.safetensors")
    assert load(copy).sha256() == expected
    told = "weights.safetensors cannot be written: No space left on device, weights.safetensors there holds those of "
    told += f"epoch 1; the weights that the run ended with are in {copy}\nHINT: make room, then: cp {copy} {run}"
    assert told in ended.stderr
    assert (load(run).epoch, load(copy).epoch) == (1, 3)
    summary = json.loads((run / "summary.json").read_text())
    assert [summary[name] for name in ("status", "weights_epoch", "weights_path")] == ["finished", 1, str(copy)]
    shown = forked("weights", str(run))
    assert shown.returncode == 1
    assert "holds the weights of epoch 1; the run ended with those of epoch 3" in shown.stderr
    assert f"HINT: they are in {copy}" in shown.stderr
    (run.parent / "ballast").unlink()
    (run / "weights.safetensors").write_bytes(copy.read_bytes())
    assert "after epoch 3" in forked("weights", str(run)).stdout


def test_no_disk_takes_them_and_the_run_can_be_resumed(expected, tmp_path, monkeypatch):
    """It has a snapshot of the second epoch: the rest is computed again, with the same bits."""
    run = tmp_path / "run"
    real = weights._safetensors

    def full(given: weights.Weights, file: object) -> None:
        if given.epoch == 3:
            raise OSError(28, "No space left on device")
        real(given, file)

    monkeypatch.setattr(fallback_writer, "places", lambda home: [])
    monkeypatch.setattr(weights, "_safetensors", full)
    ended = forked("train", *RUN, "--snapshot-every", "2epochs", "--out", str(run))
    assert ended.returncode == 75, ended.stderr
    told = "No space left on device: the run came to its end, and its weights could not be kept\nHINT: make room, then "
    assert f"{told}unisono train --resume {run}" in ended.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["weights_epoch"]) == ("halted", 2)
    monkeypatch.undo()
    ended = forked("train", "--resume", str(run))
    assert ended.returncode == 0, ended.stderr
    assert json.loads((run / "summary.json").read_text())["weights_sha256"] == expected


def test_without_a_snapshot_it_is_a_failure(tmp_path, monkeypatch):
    def full(given: weights.Weights, file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fallback_writer, "places", lambda home: [])
    monkeypatch.setattr(weights, "_safetensors", full)
    ended = forked("train", *RUN, "--out", str(tmp_path / "run"))
    assert ended.returncode == 1
    assert "its weights could not be kept\nHINT: make room, and train again" in ended.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"


def test_a_run_that_is_asked_to_end_leaves_its_snapshot_on_another_disk(expected, small_disk, tmp_path, monkeypatch):
    run = small_disk(WEIGHTS_KIB + 40) / "run"
    halt_after(monkeypatch, epoch=2, step=1)
    ended = forked("train", *RUN, "--out", str(run))
    assert ended.returncode == 75, ended.stderr
    assert listed(run / "snapshots") == []
    (path,) = tmp_path.glob("unisono-kept-*/snapshots/0*")
    assert f"the snapshot is in {path}: make room and move it, or go on from there" in ended.stdout + ended.stderr
    assert re.search(rf"go on with unisono train --resume {path.parents[1]}\n", ended.stderr)
    monkeypatch.undo()
    ended = forked("train", "--resume", str(path.parents[1]))
    assert ended.returncode == 0, ended.stderr
    assert json.loads((path.parents[1] / "summary.json").read_text())["weights_sha256"] == expected


def halt_after(monkeypatch: pytest.MonkeyPatch, *, epoch: int, step: int) -> None:
    from unisono.training.trainer import Learner

    real: Callable[..., None] = Learner.step

    def work(learner: Learner, position: int, at_epoch: int, at_step: int) -> None:
        if (at_epoch, at_step) == (epoch, step):
            learner._strategy.ask_to_halt()
        real(learner, position, at_epoch, at_step)

    monkeypatch.setattr(Learner, "step", work)
