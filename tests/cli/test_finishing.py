"""Signals that come when a run is finished, at any line of what is left to do: it ends as finished, with all its files.

The one idea: a tracer sends a signal before every line of ours that is executed between the last round and the end of
the command, so one run tries all moments.
"""

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import unisono
from support.cli import forked_command
from support.cli.forked_command import forked
from unisono.recipe import Recipe
from unisono.runs import launched_training
from unisono.runs.launched_training import train_launched
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.weights import load, verify
from unisono.supervise.supervisor import Supervisor
from unisono.training.job import prepare
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")

OURS = str(Path(unisono.__file__).parent)
RUN = ["--model", "mlp:7", "--data", "synthetic:classes=5,rows=101,features=13,test_rows=29", "--batch-size", "24"]
RUN += ["--epochs", "2", "--ranks", "2", "--snapshot-every", "1epochs", "--out", "run"]
REQUESTS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class Sender:
    """From `start` on, before each line of ours: all requests, and Ctrl-C at line `at`. The lines are written down, for
    the process is another one."""

    def __init__(self, at: int, lines: Path) -> None:
        self._at, self._lines, self._count = at, lines, 0

    def start(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frame.f_trace = self._trace
            frame = frame.f_back
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, given: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self._count += 1
            for number in (*REQUESTS, *([signal.SIGINT] if self._count == self._at else [])):
                signal.raise_signal(number)
            if self._count % 64 == 0:
                self._lines.write_text(str(self._count))
        return self._trace


@pytest.fixture(autouse=True)
def heard(monkeypatch) -> None:
    """Forked children ignore Ctrl-C; a command does not. And its plot takes longer than all else."""
    real = forked_command.main

    def main() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        real()

    monkeypatch.setattr(forked_command, "main", main)
    monkeypatch.setattr("unisono.runs.recorder.plot_loss", lambda path: (path / "loss.png").touch())


@pytest.mark.parametrize("at", [1, 3, 40, 400])
def test_a_finished_run_ends_as_finished_whenever_it_is_asked_to_end(at, tmp_path, monkeypatch):
    """at: of the lines, the one at which Ctrl-C is pressed once."""
    real, sender = Supervisor.run, Sender(at, tmp_path / "lines")

    def run(supervisor: Supervisor, position: int) -> Any:
        outcome = real(supervisor, position)
        sender.start()
        return outcome

    monkeypatch.setattr(Supervisor, "run", run)
    ended = forked("train", *RUN, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert int((tmp_path / "lines").read_text()) >= 448
    assert "interrupted" not in ended.stderr
    run_path = tmp_path / "run"
    assert json.loads((run_path / "summary.json").read_text())["status"] == "finished"
    assert verify(run_path, load(run_path))
    assert {"loss.png", "metrics.jsonl", "energy.json"} <= {path.name for path in run_path.iterdir()}
    assert len((run_path / "metrics.jsonl").read_text().splitlines()) == 2
    assert "weights" in ended.stdout.splitlines()[-1]


def test_ctrl_c_pressed_twice_still_ends_what_hangs(tmp_path, monkeypatch):
    def hang(*given: Any, **options: Any) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("it was to end")

    monkeypatch.setattr("unisono.runs.recorder.plot_loss", hang)
    ended = forked("train", *RUN, cwd=tmp_path)
    assert ended.returncode == -signal.SIGINT


@pytest.mark.parametrize("options", [{}, {"allreduce": "ring"}], ids=["arena", "ring"])
def test_ranks_of_other_launchers_that_have_finished_are_not_disturbed(options, tmp_path, monkeypatch):
    """The first one may be writing the last snapshot: minutes, maybe."""
    recipe = Recipe.from_options(
        model="mlp:7", data="synthetic:classes=5,rows=101,features=13,test_rows=29", batch_size=24, epochs=2, ranks=2,
        snapshot_every="1epochs", **options,
    )  # fmt: skip
    job, real = prepare(recipe), launched_training.run_rounds

    def walk(*given: Any) -> dict[str, Any]:
        found = real(*given)
        Sender(0, tmp_path / str(id(given))).start()
        return found

    monkeypatch.setattr(launched_training, "run_rounds", walk)

    def work(world: World) -> str:
        found = train_launched(world, job, RunPlaces(snapshots=tmp_path / "snapshots"))
        sys.settrace(None)
        world.comm.barrier()  # as the command does: nobody leaves before the first one has all that the others know
        return str(found["weights_sha256"])

    assert len(set(unisono.run(work, 2))) == 1


def test_ranks_without_take_over_end_as_finished_too(tmp_path, monkeypatch):
    """What a signal does while they compute is another matter: it ends them."""
    from unisono.runs.recorder import Recorder

    real, sender = Recorder.finish, Sender(3, tmp_path / "lines")

    def finish(record: Recorder, found: dict[str, Any]) -> dict[str, Any]:
        sender.start()
        return real(record, found)

    monkeypatch.setattr(Recorder, "finish", finish)
    without = [word for word in RUN if word not in ("--snapshot-every", "1epochs")]
    ended = forked("train", *without, "--allreduce", "ring", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "finished"
