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
from pathlib import Path
from typing import Any

import pytest
from torment import Run

import unisono
from support.needs import needs_mpi
from support.paths import QUIET_END
from unisono.arena.sync.waiting import wait_until
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.errors import RESUME_ME, AskedToEnd, RankFailed
from unisono.launch.launcher_commands import mpirun
from unisono.runs.loop_checkpoint import checkpoint
from unisono.storage.fallback_writer import NotWritten
from unisono.storage.snapshots.snapshot import listed, require_newest
from unisono.world import World

torch = pytest.importorskip("torch")
pytest.importorskip("unisono.runs.loop_checkpoint.checkpoint")  # forked ranks need not import what is imported here
from support.training import loop_checkpoint_cases as cases  # noqa: E402
from support.training.loop_programs import Loop, refused_by, started  # noqa: E402

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


@pytest.mark.parametrize("change", [{"shuffle": False}, {"samples": X + 1.0}], ids=["shuffle", "samples"])
def test_other_batches_of_the_same_number_are_refused(tmp_path, patient, change):
    def program(loop: Loop, samples: torch.Tensor = X, **options: Any) -> None:
        for batch in loop.world.batches((samples, Y), batch_size=40, **options):
            loop.train(batch)

    started(program, tmp_path / "run", stop=3)
    with pytest.raises(RankFailed, match="of other data, size or seed"):
        started(partial(program, **change), tmp_path / "run", stop=3)


def test_a_thing_that_cannot_be_kept_any_more_does_not_end_the_training(tmp_path, patient):
    def program(world: World) -> list[str]:
        own: dict[str, Any] = {}
        model, optimizer = start(world, tmp_path / "run", own=own)
        with warnings.catch_warnings(record=True, action="always") as caught:
            for batch in world.batches((X, Y), batch_size=40):
                step(world, model, optimizer, batch)
                own["file"] = object()
        return [str(warning.message) for warning in caught]

    (told,) = unisono.run(program, 1)
    assert told
    assert all(one.startswith("a snapshot could not be written: unisono.keep cannot keep own") for one in told)


SCRIPT = [sys.executable, cases.__file__]


def launched(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@needs_mpi
def test_ranks_of_mpirun_that_are_asked_to_end(tmp_path, quiet):
    ended = launched(mpirun(2, [*SCRIPT, str(tmp_path / "run"), "ask", "4"]), mpi_environment())
    assert ended.returncode == RESUME_ME, ended.stderr
    assert ended.stderr.count("start the same program again") == 1
    assert "Traceback" not in ended.stderr
    # Rank 1 asks after its fourth step; rank 0 may have settled by then whether the fifth is the last.
    assert require_newest(tmp_path / "run").facts["batches"] in (4, 5, 6)
    check(unisono.run(Program(tmp_path / "run"), 3)[0], quiet)


def test_torchrun_starts_all_again_and_they_go_on(tmp_path, quiet):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    ended = launched([*torchrun, QUIET_END, SCRIPT[1], str(tmp_path / "run"), "die", "6"], child_environment(threads=1))
    assert ended.returncode == 0, ended.stderr
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("{"))
    check(json.loads(line), quiet)


Work = Callable[[World, Path], Any]
REFUSED: dict[str, tuple[Work, str]] = {
    "before share": (unisono.keep, "world.sharing before world.share"),
    "a thing without state": (lambda world, path: start(world, path, thing=3), "was given thing, a int"),
    "few copies": (lambda world, path: start(world, path, copies=1), "copies is 1"),
    "a rhythm that is none": (lambda world, path: start(world, path, every="often"), "every is 'often'"),
    "twice": (lambda world, path: [start(world, path), unisono.keep(world, path)], "unisono.keep, once more"),
    "after a batch": (
        lambda world, path: [go(world, *shared(world)), unisono.keep(world, path)],
        "after the first batch",
    ),
    "a directory that is a file": (lambda world, path: [path.touch(), start(world, path)], "File exists"),
    "a scheduler that is not kept": (
        lambda world, path: go_with_scheduler(world, *start(world, path)),
        "would begin anew",
    ),
    "loading after it": (lambda world, path: start(world, path)[1].load_state_dict(STATE), "after unisono.keep"),
    "what cannot be kept": (lambda world, path: start(world, path, own={"set": {1}}), r"own\['set'\]: a set"),
}
STATE: dict[str, Any] = {"state": {}, "param_groups": [{"params": [0, 1]}]}


def shared(world: World, **given: Any) -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 2)
    return world.share(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=given.pop("momentum", 0.0)), **given)


def start(world: World, path: Path, **given: Any) -> Any:
    model, optimizer = shared(world)
    unisono.keep(world, path, **{"every": "1steps"} | given)
    return model, optimizer


def step(world: World, model: Any, optimizer: Any, batch: Any) -> None:
    for x, y in batch:
        world.backward(torch.nn.functional.cross_entropy(model(x), y))
    optimizer.step()


def go(world: World, model: Any, optimizer: Any, **given: Any) -> None:
    for batch in world.batches((X, Y), **{"batch_size": 40} | given):
        step(world, model, optimizer, batch)


def go_with_scheduler(world: World, model: Any, optimizer: Any) -> None:
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    go(world, model, optimizer)


@pytest.mark.parametrize(("work", "message"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_told(tmp_path, work, message):
    found = refused_by(lambda world: work(world, tmp_path / "run"), tmp_path / "run")
    assert re.search(rf"{message}[\s\S]*\nHINT: ", found), found


OTHERS: dict[str, tuple[Work, str]] = {
    "another model": (lambda world, path: Program(path)(world), "the model"),
    "another optimizer": (
        lambda world, path: [shared(world, momentum=0.9), unisono.keep(world, path)],
        "the optimizer: sgd then, momentum now",
    ),
    "other shards": (lambda world, path: [shared(world, shards=4), unisono.keep(world, path)], "shards: 8 then, 4 now"),
    "other things": (lambda world, path: start(world, path, own={}), r"the things to keep: \[\] then, \['own'\] now"),
    "another batch": (lambda world, path: go(world, *start(world, path), batch_size=30), "of other data, size or seed"),
    "another seed": (lambda world, path: go(world, *start(world, path), seed=1), "of other data, size or seed"),
    "shorter epochs": (lambda world, path: go(world, *start(world, path), drop_last=True), "and of other data"),
}


@pytest.mark.parametrize(("work", "message"), OTHERS.values(), ids=OTHERS)
def test_a_program_that_is_another_one_is_refused_and_nothing_is_changed(tmp_path, patient, work, message):
    unisono.run(lambda world: go(world, *start(world, tmp_path / "run")), 1)
    assert require_newest(tmp_path / "run").facts["batches"] == 3
    found = refused_by(lambda world: work(world, tmp_path / "run"), tmp_path / "run")
    assert re.search(message, found), found


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
    assert "can be used" in refused_by(Program(tmp_path / "run"), tmp_path / "run")


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
        full.setattr("unisono.storage.fallback_writer.places", lambda home: [other])
        full.setattr("unisono.storage.fallback_writer.SAFE_PATIENCE_S", 0.0)
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
