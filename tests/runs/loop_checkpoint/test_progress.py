"""Programs that are started again: nothing that a snapshot holds runs again, everything else once."""

import os
import random
import signal
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.errors import RESUME_ME, AskedToEnd, RankFailed
from unisono.runs.loop_checkpoint.progress import Progress
from unisono.storage.snapshots.snapshot import listed, require_newest
from unisono.world import World

torch = pytest.importorskip("torch")
pytest.importorskip("unisono.runs.loop_checkpoint.checkpoint")  # forked ranks need not import what is imported here
from support.training.loop_checkpoint_cases import X, Y  # noqa: E402
from support.training.loop_programs import Loop, refused_by, rest_of, started  # noqa: E402

STEPS, EPOCHS = 4, 3  # 150 samples in batches of 40
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, once for all ranks


def natural(loop: Loop, epochs: int = EPOCHS) -> None:
    for epoch in loop.world.epochs(epochs):
        for batch in loop.world.batches((X, Y), batch_size=40):
            loop.train(batch)
        loop.trace.append(["epoch", epoch, batch.loss])


def winding(loop: Loop) -> None:
    """Phases, epochs with two loops, loops that are left early, a loop after all of them."""
    for phase in loop.world.epochs(2):
        for epoch in loop.world.epochs(3):
            for batch in loop.world.batches((X, Y), 40):
                loop.train(batch)
                if (phase, epoch, batch.step) == (0, 1, 1):
                    break
            for again in loop.world.batches((X, Y), 60, epochs=2):
                loop.train(again)
            loop.trace.append(["epoch", phase, epoch, again.loss])
            if (phase, epoch) == (1, 1):
                break
        loop.trace.append(["phase", phase])
    for batch in loop.world.batches((X, Y), 40):
        loop.train(batch)


def drawing(loop: Loop) -> None:
    """What it draws between batches goes on where it was."""
    for batch in loop.world.batches((X, Y), batch_size=40, epochs=2):
        loop.train(batch, float(torch.rand(())) + random.random())


class Cooled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(12, 2)
        self.register_buffer("temperature", torch.tensor(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) / self.temperature


def cooling(loop: Loop) -> None:
    """Buffers that it writes after a step are kept as written."""
    for batch in loop.world.batches((X, Y), batch_size=40, epochs=2):
        loop.train(batch)
        loop.model.temperature.mul_(0.9)


def in_phases(loop: Loop) -> None:
    """Early stopping, then a second phase: a loop left at the end of an epoch has not begun the next."""
    for _phase in range(2):
        for batch in loop.world.batches((X, Y), batch_size=40, epochs=2):
            loop.train(batch)
            if batch.last and batch.epoch == 0:
                break


def picky(loop: Loop) -> None:
    """A batch that was given and not gone through does not count."""
    for _epoch in range(3):
        for batch in loop.world.batches((X, Y), batch_size=40):
            if batch.step >= 2:
                break
            loop.train(batch)


def broken(loop: Loop) -> None:
    """Every second epoch is left after two batches, for a reason that is known in them only."""
    for epoch in range(6):
        for batch in loop.world.batches((X, Y), 40):
            loop.train(batch)
            if epoch % 2 and batch.step == 1:
                break


def schedulers(optimizer: Any) -> dict[str, Any]:
    return {
        "scheduler": torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], 0.1),
        "plateau": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0),  # it holds infinities
    }


def scheduled(loop: Loop) -> None:
    """Epochs in a loop of its own, with schedulers that are stepped between them."""
    for epoch in range(4):
        for batch in loop.world.batches((X, Y), batch_size=40):
            loop.train(batch)
            loop.trace[-1].append(loop.optimizer.param_groups[0]["lr"])
        loop.things["scheduler"].step()
        loop.things["plateau"].step(1.0)
        if not loop.keeper.catching_up:
            loop.trace.append(epoch)


@pytest.mark.filterwarnings("ignore:Detected call of")  # of a scheduler before a step: epochs that are passed over
@pytest.mark.parametrize(
    ("program", "stops", "given"),
    [
        (natural, (2, 5, 6, 10, 12), {}),
        (winding, (5, 13, 26, 33, 50), {}),
        (drawing, (3,), {}),
        (cooling, (3, 4), {"net": Cooled}),
        (in_phases, (5, 7), {}),
        (picky, (4,), {}),
        (broken, (5, 6, 7, 11), {}),
        (scheduled, (4, 5, 10), {"things": schedulers}),
    ],
)
def test_a_program_that_is_started_again_does_what_is_left_and_nothing_else(tmp_path, patient, program, stops, given):
    whole = started(program, tmp_path / "whole", **given)
    for stop in stops:
        assert rest_of(whole, stop - 1)[0][:3] == started(program, tmp_path / str(stop), stop=stop, **given)[-1][:3]
        kept = require_newest(tmp_path / str(stop)).facts["batches"]
        assert kept in (stop - 1, stop - 2)
        assert started(program, tmp_path / str(stop), **given) == rest_of(whole, kept), stop


def test_again_and_again_on_other_numbers_of_ranks_with_a_death(tmp_path, patient):
    def program(loop: Loop, dies: int) -> None:
        for epoch in loop.world.epochs(EPOCHS):
            for batch in loop.world.batches((X, Y), batch_size=40):
                if loop.batches == 2 and loop.world.sharing.member.slot == dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                loop.train(batch)
            loop.trace.append(["epoch", epoch, batch.loss])

    whole, folder = started(natural, tmp_path / "whole"), tmp_path / "run"
    started(natural, folder, stop=6, ranks=2)
    with pytest.warns(UserWarning, match="rank 0 was killed by SIGKILL; the others took over"):
        started(partial(program, dies=0), folder, stop=4, ranks=3)
    kept = require_newest(folder).facts["batches"]
    assert kept >= 6
    assert started(natural, folder, ranks=2) == rest_of(whole, kept)


def ask_after(folder: Path, step: int) -> None:
    """The next batch is the last one then; the snapshot is of the moment when another one is about to be given."""

    def asked(loop: Loop) -> None:
        for epoch in loop.world.epochs(EPOCHS):
            for batch in loop.world.batches((X, Y), batch_size=40):
                loop.train(batch)
                if STEPS * epoch + batch.step + 1 == step:
                    os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(AskedToEnd) as caught:
        started(asked, folder)
    assert caught.value.code == RESUME_ME
    assert require_newest(folder).facts["batches"] == step + 1


@pytest.mark.parametrize("step", [1, STEPS - 1, STEPS])
def test_asked_to_end_in_an_epoch_or_after_its_last_batch(tmp_path, step):
    whole = started(natural, tmp_path / "whole")
    ask_after(tmp_path / "run", step)
    assert started(natural, tmp_path / "run") == rest_of(whole, step + 1)


def test_a_program_that_has_finished_ends_as_before(tmp_path, patient):
    whole = started(natural, tmp_path / "run")
    again = started(natural, tmp_path / "run")
    assert again == rest_of(whole, EPOCHS * STEPS - 1)
    assert started(partial(natural, epochs=EPOCHS + 1), tmp_path / "run")[:2] == again[:2]  # and goes on


def test_without_snapshots_it_is_a_range():
    def work(world: World) -> list[list[int]]:
        model = torch.nn.Linear(12, 2)
        world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
        epochs = world.epochs(3)
        return [list(epochs), list(epochs), list(world.epochs(0)), [len(epochs)]]

    assert unisono.run(work, 1)[0] == [[0, 1, 2], [0, 1, 2], [], [3]]


def refused(program: Callable[[Loop], None], folder: Path) -> str:
    return refused_by(lambda world: program(Loop(world, folder)), folder)


def ranged(loop: Loop, loops: int = 1, epochs: Callable[[Loop], Iterable[int]] = lambda loop: range(EPOCHS)) -> None:
    """A program of somebody who has not heard of `world.epochs`, or of somebody who has."""
    for epoch in epochs(loop):
        for _ in range(loops):
            for batch in loop.world.batches((X, Y), batch_size=40):
                loop.train(batch)
        loop.trace.append(["epoch", epoch, batch.loss])


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("stop", [6, 10])
def test_a_range_is_refused_with_a_hint_and_the_program_that_follows_it_goes_on(
    tmp_path, patient, monkeypatch, capfd, stop, old
):
    if old:  # as snapshots were before loops over epochs were noted in them
        plain = Progress.facts
        monkeypatch.setattr(Progress, "facts", lambda self: {name: plain(self)[name] for name in ("last", "loops")})
    whole, folder = started(natural, tmp_path / "whole"), tmp_path / "run"
    started(ranged, folder, stop=stop)
    capfd.readouterr()
    error = refused(ranged, folder)
    assert "'batch'" in error
    assert "HINT: `for epoch in world.epochs(n)` begins with the epoch that goes on" in error
    told = (
        "unisono: epoch 0 is done: its loop gives no batch, and what follows the loop runs again\nHINT: `for epoch in"
    )
    assert capfd.readouterr().err.count(told) == 1
    kept = require_newest(folder).facts["batches"]
    assert started(natural, folder, stop=4)[0] == rest_of(whole, kept)[0]
    assert kept < (later := require_newest(folder).facts["batches"])
    assert started(natural, folder) == rest_of(whole, later)


def test_a_name_that_is_not_there_for_another_reason_is_told_as_it_is(tmp_path, patient):
    def program(loop: Loop) -> None:
        natural(loop)
        print(nothing)  # noqa: F821

    with pytest.raises(RankFailed, match="NameError: name 'nothing' is not defined"):
        started(program, tmp_path / "run")
    with pytest.raises(RankFailed, match="NameError: name 'nothing' is not defined"):
        started(program, tmp_path / "run")


def test_epochs_that_cannot_be_told_from_a_snapshot_are_refused(tmp_path, patient):
    started(partial(ranged, loops=2), tmp_path / "run", stop=3)
    with pytest.raises(RankFailed, match=r"several loops over batches in an epoch[\s\S]*HINT: "):
        started(partial(ranged, loops=2, epochs=lambda loop: loop.world.epochs(EPOCHS)), tmp_path / "run")


def test_fewer_epochs_than_are_done_are_refused(tmp_path, patient):
    started(natural, tmp_path / "run", stop=11)
    error = refused(partial(natural, epochs=2), tmp_path / "run")
    assert "world.epochs(2), and" in error
    assert "was made in epoch 2, from 0\nHINT: give 3 or more" in error


def test_other_batches_of_the_epoch_that_goes_on_are_refused(tmp_path, patient):
    """Also if no batch before is looked at: those of the epochs that are done."""

    def other(loop: Loop) -> None:
        for _ in loop.world.epochs(EPOCHS):
            for batch in loop.world.batches((X, Y), batch_size=40, seed=1):
                loop.train(batch)

    ask_after(tmp_path / "run", STEPS - 1)
    assert "and of other data, size or seed" in refused(other, tmp_path / "run")
    assert listed(tmp_path / "run")
