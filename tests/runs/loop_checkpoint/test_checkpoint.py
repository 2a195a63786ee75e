"""A user's own loop that keeps snapshots: killed as a whole or asked to end, and started again, it ends with the same
bits; what follows a step runs once for each step that a snapshot holds."""

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from torment import Run

import unisono
from unisono.arena.sync.waiting import wait_until
from unisono.environment.variables import child_environment, mpi_environment
from unisono.errors import RESUME_ME, AskedToEnd, RankFailed, UserError
from unisono.launch.commands import find_program, mpirun
from unisono.runs.loop_checkpoint import checkpoint
from unisono.storage.fallback import NotWritten
from unisono.storage.snapshots.snapshot import listed, require_newest
from unisono.world import World

torch = pytest.importorskip("torch")
pytest.importorskip(
    "unisono.runs.loop_checkpoint.checkpoint"
)  # ranks are forked: what is imported here they need not import
from support.training import loop_checkpoint_cases as cases  # noqa: E402

STEPS, X, Y, Program, sha_of = cases.STEPS, cases.X, cases.Y, cases.Program, cases.sha_of
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, once for all ranks

RANKS = 2


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> dict[str, Any]:
    (found, *_) = unisono.run(Program(tmp_path_factory.mktemp("quiet") / "run", every=""), RANKS)
    assert len(found["losses"]) == STEPS
    return found


def check(found: dict[str, Any], quiet: dict[str, Any]) -> None:
    for name in ("sha", "average", "lr", "losses"):
        assert found[name] == quiet[name], name
    assert not found["catching up"]


def kill_everybody(world: World, step: int, *, at: int) -> None:
    if step == at and world.first:  # which has logged the step
        os.killpg(0, signal.SIGKILL)


def test_killed_as_a_whole_again_and_again_it_ends_with_the_same_bits(tmp_path, quiet, patient):
    """At random steps, on other ranks each time; with a snapshot of every second step."""
    rng, folder, log = random.Random(1), tmp_path / "run", tmp_path / "log"
    reached, kept, logged = 0, 0, []
    while reached < STEPS - 2:
        reached = rng.randrange(reached + 1, STEPS - 1)
        program = Program(folder, "2steps", log, partial(kill_everybody, at=reached))
        with Run(partial(unisono.run, program, rng.choice([1, 2, 3])), tmp_path / "output") as run:
            assert not run.running(60.0)
            assert run.code() == -signal.SIGKILL, (tmp_path / "output").read_text()
        logged.append((kept, reached))
        kept = require_newest(folder).facts["batches"] if listed(folder) else 0
        assert kept >= reached - 3  # what was decided after step 2 is copied in step 3, and written then
    found = unisono.run(Program(folder, "2steps", log), 3)[0]
    check(found, quiet)
    assert found["resumed"]
    steps = [json.loads(line) for line in log.read_text().splitlines()]
    expected = [step for start, stop in [*logged, (kept, STEPS)] for step in range(start + 1, stop + 1)]
    assert [step for step, _, _ in steps] == expected  # from each snapshot on, every step once
    assert {step: loss for step, loss, _ in steps} == dict(enumerate(quiet["losses"], 1))


def heeds(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, by now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> number - 1 & 1)


@pytest.mark.parametrize("to", ["the parent", "a rank", "everybody"])
def test_asked_to_end_it_leaves_a_snapshot_of_that_step(tmp_path, quiet, to, capfd):
    def ask(world: World, step: int) -> None:
        if (world.rank, step) == (1, 4):
            assert wait_until(lambda: heeds(parent, signal.SIGTERM), 60.0)
            for pid in {"the parent": [parent], "a rank": [os.getpid()], "everybody": [parent, os.getpid()]}[to]:
                os.kill(pid, signal.SIGTERM)
            # The others wait for this rank: the run is not over before it was asked to end.
            assert wait_until(lambda: world.sharing.shared.requests.asked_to_halt, 60.0)

    parent, folder, log = os.getpid(), tmp_path / "run", tmp_path / "log"
    with pytest.raises(AskedToEnd) as caught:
        unisono.run(Program(folder, "", log, ask), RANKS)
    assert caught.value.code == RESUME_ME
    snapshot = require_newest(folder)
    assert caught.value.snapshot in (str(snapshot.path), str(folder))
    told = f"unisono: asked to end after {snapshot.facts['batches']} steps; everything up to here is in {snapshot.path}"
    assert capfd.readouterr().err.count(told) == 1
    check(unisono.run(Program(folder, "", log), 3)[0], quiet)
    assert [json.loads(line)[0] for line in log.read_text().splitlines()] == [*range(1, STEPS + 1)]  # each once


def test_a_rank_that_dies_while_others_take_over_costs_no_snapshot(tmp_path, quiet, patient):
    """The first member, too, which writes them: the next one does it then."""

    def die(world: World, step: int) -> None:
        if (world.sharing.member.slot, step) in ((0, 4), (2, 7)):
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.warns(UserWarning, match="the others took over"):
        found = unisono.run(Program(tmp_path / "run", after_step=die), 3)
    check(found[1], quiet)
    assert found[0] is found[2] is None
    snapshot = require_newest(tmp_path / "run")
    assert snapshot.facts["batches"] >= STEPS - 2
    check(unisono.run(Program(tmp_path / "run"), 1)[0], quiet)


def small(world: World, folder: Path, **things: Any) -> tuple[Any, Any]:
    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 2)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    unisono.keep(world, folder, every="1steps", **things)
    return model, optimizer


def go_through(world: World, batch: Any, model: Any, optimizer: Any) -> None:
    for x, y in batch:
        world.backward(torch.nn.functional.cross_entropy(model(x), y))
    optimizer.step()


def resumed_like(tmp_path: Path, program: Callable[..., Any], stops: list[int]) -> None:
    """Ended after so many steps, each time, and started again, it ends as the one that was never ended."""
    quiet = unisono.run(partial(program, folder=tmp_path / "quiet", stop=0), 1)[0]
    for stop in stops:
        folder = tmp_path / str(stop)
        assert unisono.run(partial(program, folder=folder, stop=stop), 1)[0] is None
        assert listed(folder)
        assert unisono.run(partial(program, folder=folder, stop=0), 1)[0] == quiet


def test_what_is_drawn_between_batches_goes_on_where_it_was(tmp_path, patient):
    def program(world: World, folder: Path, stop: int) -> Any:
        model, optimizer = small(world, folder)
        for number, batch in enumerate(world.batches((X, Y), batch_size=40, epochs=2), 1):
            drawn = float(torch.rand(())) + random.random()
            for x, y in batch:
                world.backward(drawn * torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            if number == stop:
                return None
        return sha_of(model)

    resumed_like(tmp_path, program, [3])


def test_buffers_that_the_program_writes_after_a_step_are_kept_as_written(tmp_path, patient):
    class Cooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(12, 2)
            self.register_buffer("temperature", torch.tensor(4.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) / self.temperature

    def program(world: World, folder: Path, stop: int) -> Any:
        torch.manual_seed(0)
        model = Cooled()
        model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
        unisono.keep(world, folder, every="1steps")
        for number, batch in enumerate(world.batches((X, Y), batch_size=40, epochs=2), 1):
            go_through(world, batch, model, optimizer)
            model.temperature.mul_(0.9)
            if number == stop:
                return None
        return sha_of(model)

    resumed_like(tmp_path, program, [3, 4])


def test_a_loop_left_at_the_end_of_an_epoch_has_not_begun_the_next(tmp_path, patient):
    """Early stopping, then a second phase; ended at the border, and later."""

    def program(world: World, folder: Path, stop: int) -> Any:
        model, optimizer = small(world, folder)
        number = 0
        for _phase in range(2):
            for batch in world.batches((X, Y), batch_size=40, epochs=2):
                go_through(world, batch, model, optimizer)
                number += 1
                if number == stop:
                    return None
                if batch.last and batch.epoch == 0:
                    break
        return sha_of(model)

    resumed_like(tmp_path, program, [5, 7])


def test_a_batch_that_was_given_and_not_gone_through_does_not_count(tmp_path, patient):
    def program(world: World, folder: Path, stop: int) -> Any:
        model, optimizer = small(world, folder)
        number = 0
        for _epoch in range(3):
            for batch in world.batches((X, Y), batch_size=40):
                if batch.step >= 2:
                    break
                go_through(world, batch, model, optimizer)
                number += 1
                if number == stop:
                    return None
        return sha_of(model)

    resumed_like(tmp_path, program, [4])


@pytest.mark.parametrize("change", ["shuffle", "samples"])
def test_other_batches_of_the_same_number_are_refused(tmp_path, patient, change):
    def program(world: World, **options: Any) -> None:
        model, optimizer = small(world, tmp_path / "run")
        samples = options.pop("samples", X)
        for number, batch in enumerate(world.batches((samples, Y), batch_size=40, **options), 1):
            go_through(world, batch, model, optimizer)
            if number == 3:
                return

    unisono.run(program, 1)
    with pytest.raises(RankFailed, match="of other data, size or seed"):
        unisono.run(partial(program, **{change: {"shuffle": False, "samples": X + 1.0}[change]}), 1)


def test_a_thing_that_cannot_be_kept_any_more_does_not_end_the_training(tmp_path, patient):
    def program(world: World) -> list[str]:
        own: dict[str, Any] = {}
        model, optimizer = small(world, tmp_path / "run", own=own)
        with warnings.catch_warnings(record=True, action="always") as caught:
            for batch in world.batches((X, Y), batch_size=40):
                go_through(world, batch, model, optimizer)
                own["file"] = object()
        return [str(warning.message) for warning in caught]

    (told,) = unisono.run(program, 1)
    assert told
    assert all(one.startswith("a snapshot could not be written: unisono.keep cannot keep own") for one in told)


SCRIPT = [sys.executable, cases.__file__]


def started(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.skipif(not find_spec("mpi4py"), reason="mpi4py is not installed")
@pytest.mark.skipif(find_program("mpirun") is None, reason="mpirun is not installed")
def test_ranks_of_mpirun_that_are_asked_to_end(tmp_path, quiet):
    ended = started(mpirun(2, [*SCRIPT, str(tmp_path / "run"), "ask", "4"]), mpi_environment())
    assert ended.returncode == RESUME_ME, ended.stderr
    assert ended.stderr.count("start the same program again") == 1
    assert "Traceback" not in ended.stderr
    # Rank 1 asks after its fourth step; rank 0 may have settled by then whether the fifth is the last.
    assert require_newest(tmp_path / "run").facts["batches"] in (4, 5, 6)
    check(unisono.run(Program(tmp_path / "run"), 3)[0], quiet)


def test_torchrun_starts_all_again_and_they_go_on(tmp_path, quiet):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    ended = started([*torchrun, SCRIPT[1], str(tmp_path / "run"), "die", "6"], child_environment(threads=1))
    assert ended.returncode == 0, ended.stderr
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("{"))
    check(json.loads(line), quiet)


def outer(world: World, folder: Path, stop: int, seen: list[Any]) -> str:
    """Epochs in a loop of the user's own, with a scheduler that is stepped between them."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 2)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], 0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)  # it holds infinities
    keeper = unisono.keep(world, folder, every="1steps", scheduler=scheduler, plateau=plateau)
    steps = 0
    for epoch in range(4):
        for batch in world.batches((X, Y), batch_size=40):
            for x, y in batch:
                world.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            seen.append([batch.epoch, batch.step, optimizer.param_groups[0]["lr"]])
            steps += 1
            if steps == stop:
                return "stopped"
        scheduler.step()
        plateau.step(1.0)
        if not keeper.catching_up:
            seen.append(epoch)
    return sha_of(model)


@pytest.mark.filterwarnings("ignore:Detected call of")  # of a scheduler before a step: epochs that are passed over
@pytest.mark.parametrize("stop", [4, 5, 10])
def test_epochs_in_a_loop_of_ones_own_and_schedulers_between_them(tmp_path, patient, stop):
    """Also where the last batch before the end was the last one of an epoch."""

    def work(world: World, folder: Path, stop: int = 0) -> list[Any]:
        seen: list[Any] = []
        return [outer(world, folder, stop, seen), seen]

    ((sha, whole),) = unisono.run(partial(work, folder=tmp_path / "quiet"), 1)
    ((_, begun),) = unisono.run(partial(work, folder=tmp_path / "run", stop=stop), 1)
    kept = require_newest(tmp_path / "run").facts["batches"]
    ((ended, rest),) = unisono.run(partial(work, folder=tmp_path / "run"), 1)
    assert ended == sha
    assert kept in (stop - 1, stop - 2)
    batches = [entry for entry in whole if isinstance(entry, list)]
    assert [entry for entry in rest if isinstance(entry, list)] == batches[kept:]
    assert [entry for entry in begun if isinstance(entry, list)] == batches[:stop]
    assert [entry for entry in rest if isinstance(entry, int)] == [*range(kept // 4, 4)]


def broken(world: World, folder: Path, most: int) -> list[Any]:
    """Every second epoch is left after so many batches, for a reason that is known in them only."""
    model, optimizer = start(world, folder)
    seen = []
    for epoch in range(6):
        for batch in world.batches((X, Y), 40):
            for x, y in batch:
                world.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            seen.append([batch.epoch, batch.step, batch.loss])
            if len(seen) == most:
                return seen
            if epoch % 2 and batch.step == 1:
                break
    return [*seen, sha_of(model)]


@pytest.mark.parametrize("stop", [5, 6, 7, 11])
def test_loops_that_were_left_early_are_left_there_again(tmp_path, patient, stop):
    (whole,) = unisono.run(partial(broken, folder=tmp_path / "quiet", most=0), 1)
    unisono.run(partial(broken, folder=tmp_path / "run", most=stop), 1)
    kept = require_newest(tmp_path / "run").facts["batches"]
    (rest,) = unisono.run(partial(broken, folder=tmp_path / "run", most=0), 1)
    assert 0 < kept < stop
    assert rest == whole[kept:]


REFUSED: dict[str, tuple[Callable[[World, Path], Any], str]] = {
    "before share": (unisono.keep, "world.sharing before world.share"),
    "a thing without state": (lambda world, path: start(world, path, thing=3), "was given thing, a int"),
    "few copies": (lambda world, path: start(world, path, copies=1), "copies is 1"),
    "a rhythm that is none": (lambda world, path: start(world, path, every="often"), "every is 'often'"),
    "twice": (lambda world, path: [start(world, path), unisono.keep(world, path)], "unisono.keep, once more"),
    "after a batch": (lambda world, path: [late(world), unisono.keep(world, path)], "after the first batch"),
    "a directory that is a file": (lambda world, path: start(world, made(path)), "File exists"),
    "a scheduler that is not kept": (lambda world, path: scheduled(world, *start(world, path)), "would begin anew"),
    "loading after it": (lambda world, path: start(world, path)[1].load_state_dict(STATE), "after unisono.keep"),
    "what cannot be kept": (
        lambda world, path: start(world, path, own={"set": {1}}),
        r"own\['set'\]: a set",
    ),
}
STATE: dict[str, Any] = {"state": {}, "param_groups": [{"params": [0, 1]}]}


def start(world: World, path: Path, **given: Any) -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 2)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    unisono.keep(world, path, **{"every": "1steps"} | given)
    return model, optimizer


def go(world: World, model: Any, optimizer: Any, **given: Any) -> None:
    for batch in world.batches((X, Y), **{"batch_size": 40} | given):
        for x, y in batch:
            world.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()


def late(world: World) -> None:
    model = torch.nn.Linear(12, 2)
    go(world, *world.share(model, torch.optim.SGD(model.parameters(), lr=0.1)))


def made(path: Path) -> Path:
    path.write_text("")
    return path


def scheduled(world: World, model: Any, optimizer: Any) -> None:
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    go(world, model, optimizer)


def refused(work: Callable[[World, Path], Any], path: Path) -> str:
    def caught(world: World) -> str:
        try:
            work(world, path)
        except UserError as error:
            return str(error)
        return "nothing was refused"

    (message,) = unisono.run(caught, 1)
    return str(message)


@pytest.mark.parametrize(("work", "message"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_told(tmp_path, work, message):
    found = refused(work, tmp_path / "run")
    assert re.search(message, found), found
    assert "\nHINT: " in found


OTHERS: dict[str, tuple[Callable[[World, Path], Any], str]] = {
    "another model": (lambda world, path: Program(path)(world), "the model"),
    "another optimizer": (
        lambda world, path: other(world, path, momentum=0.9),
        "the optimizer: sgd then, momentum now",
    ),
    "other shards": (lambda world, path: other(world, path, shards=4), "shards: 8 then, 4 now"),
    "other things": (lambda world, path: start(world, path, own={}), r"the things to keep: \[\] then, \['own'\] now"),
    "another batch": (
        lambda world, path: go(world, *start(world, path), batch_size=30),
        "and of other data, size or seed",
    ),
    "another seed": (lambda world, path: go(world, *start(world, path), seed=1), "and of other data, size or seed"),
    "shorter epochs": (lambda world, path: go(world, *start(world, path), drop_last=True), "and of other data"),
}


def other(world: World, path: Path, *, momentum: float = 0.0, shards: int = 0) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 2)
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum), shards=shards)
    unisono.keep(world, path)


@pytest.mark.parametrize(("work", "message"), OTHERS.values(), ids=OTHERS)
def test_a_program_that_is_another_one_is_refused_and_nothing_is_changed(tmp_path, patient, work, message):
    unisono.run(lambda world: go(world, *start(world, tmp_path / "run")), 1)
    before = {entry: entry.read_bytes() for entry in (tmp_path / "run").rglob("*") if entry.is_file()}
    assert require_newest(tmp_path / "run").facts["batches"] == 3
    found = refused(work, tmp_path / "run")
    assert re.search(message, found), found
    assert {entry: entry.read_bytes() for entry in (tmp_path / "run").rglob("*") if entry.is_file()} == before


def test_a_damaged_snapshot_is_named_and_the_one_before_it_is_used(tmp_path, quiet, patient):
    unisono.run(Program(tmp_path / "run"), 2)
    latest, before, *_ = listed(tmp_path / "run")
    (latest / "params.safetensors").write_bytes(b"")

    def work(world: World) -> list[Any]:
        with pytest.warns(UserWarning, match=f"the snapshot {latest.name} cannot be used: params"):
            return [Program(tmp_path / "run")(world)]

    ((found,),) = unisono.run(work, 1)
    assert found["resumed"] == str(before)
    check(found, quiet)
    for path in listed(tmp_path / "run"):
        (path / "manifest.json").write_bytes(b"")
    assert "can be used" in refused(lambda world, path: Program(path)(world), tmp_path / "run")


def test_asked_to_end_on_a_full_disk_it_leaves_its_snapshot_on_another(tmp_path, quiet, monkeypatch, capfd):
    """And goes on when that was moved to where it belongs."""
    folder, other = tmp_path / "run", tmp_path / "other"
    other.mkdir()
    real = checkpoint.write

    def write(home: Path, *rest: Any, **options: Any) -> Any:
        if home == folder:
            raise NotWritten("No space left on device", number=errno.ENOSPC)
        return real(home, *rest, **options)

    with monkeypatch.context() as full:
        full.setattr(checkpoint, "write", write)
        full.setattr("unisono.storage.fallback.places", lambda home: [other])
        full.setattr("unisono.storage.fallback.SAFE_PATIENCE_S", 0.0)
        ask = Program(folder, "", None, lambda world, step: step == 5 and os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(AskedToEnd):
            unisono.run(ask, RANKS)
    (path,) = other.glob("unisono-kept-*/run/0*")
    assert f"make room, and move {path} to {folder} before the next start" in capfd.readouterr().err
    path.rename(folder / path.name)
    (found, *_) = unisono.run(Program(folder, ""), RANKS)
    check(found, quiet)


@pytest.mark.parametrize("kind", ["a link", "a pipe"])
def test_a_lock_that_is_no_file_is_refused_before_the_first_step(tmp_path, kind):
    (tmp_path / "run").mkdir()
    lock = tmp_path / "run" / ".lock"
    lock.symlink_to(tmp_path / "new") if kind == "a link" else os.mkfifo(lock)
    with pytest.raises(RankFailed, match=r"run/\.lock: is (a link|not a regular).*\nHINT: remove it"):
        unisono.run(Program(tmp_path / "run", every=""), 1)
    assert not (tmp_path / "new").exists()
