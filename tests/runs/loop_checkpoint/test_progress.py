"""`world.epochs` of a program that is started again: nothing that a snapshot holds runs again, everything else once."""

import os
import signal
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.errors import RESUME_ME, AskedToEnd, RankFailed, UserError
from unisono.runs.loop_checkpoint.progress import Progress
from unisono.storage.snapshots.snapshot import listed, require_newest
from unisono.world import World

torch = pytest.importorskip("torch")
pytest.importorskip(
    "unisono.runs.loop_checkpoint.checkpoint"
)  # ranks are forked: what is imported here they need not import
from support.training import loop_checkpoint_cases as cases  # noqa: E402

X, Y, sha_of = cases.X, cases.Y, cases.sha_of
STEPS, EPOCHS = 4, 3  # 150 samples in batches of 40
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, once for all ranks


class Loop:
    """What a program does in its loops, written down, and left after so many batches in all."""

    def __init__(self, world: World, folder: Path, stop: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = torch.nn.Linear(12, 2)
        self.model, self.optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.keeper = unisono.keep(world, folder, every="1steps")
        self.world, self.stop, self.batches, self.trace = world, stop, 0, []

    def train(self, batch: Any) -> None:
        for x, y in batch:
            self.world.backward(torch.nn.functional.cross_entropy(self.model(x), y))
        self.optimizer.step()
        self.trace.append([batch.epoch, batch.step, batch.loss])
        self.batches += 1
        if self.batches == self.stop:
            raise Stopped

    def result(self) -> list[Any]:
        return [*self.trace, sha_of(self.model)]


class Stopped(Exception):
    pass


def started(program: Callable[[Loop], None], folder: Path, *, stop: int = 0, ranks: int = 1) -> list[Any]:
    """What it has written down at its end, or when it was left; of the first rank."""

    def work(world: World) -> list[Any]:
        loop = Loop(world, folder, stop)
        try:
            program(loop)
        except Stopped:
            return loop.trace
        return loop.result()

    return next(found for found in unisono.run(work, ranks) if found is not None)


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


def is_batch(entry: Any) -> bool:
    return isinstance(entry, list) and isinstance(entry[0], int)


def rest_of(whole: list[Any], kept: int) -> list[Any]:
    """From the batch on that was about to be given when so many were done."""
    return whole[[place for place, entry in enumerate(whole) if is_batch(entry)][kept] :]


@pytest.mark.parametrize(("program", "stops"), [(natural, (2, 5, 6, 10, 12)), (winding, (5, 13, 26, 33, 50))])
def test_a_program_that_is_started_again_does_what_is_left_and_nothing_else(tmp_path, patient, program, stops):
    whole = started(program, tmp_path / "whole")
    for stop in stops:
        assert rest_of(whole, stop - 1)[0] == started(program, tmp_path / str(stop), stop=stop)[-1]
        kept = require_newest(tmp_path / str(stop)).facts["batches"]
        assert kept in (stop - 1, stop - 2)
        assert started(program, tmp_path / str(stop)) == rest_of(whole, kept), stop


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
    """With which words; what is kept stays as it is."""
    before = {entry: entry.read_bytes() for entry in folder.rglob("*") if entry.is_file()}
    with pytest.raises(RankFailed) as caught:
        started(program, folder)
    assert caught.value.kind == UserError.__name__
    assert {entry: entry.read_bytes() for entry in folder.rglob("*") if entry.is_file()} == before
    return str(caught.value)


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
