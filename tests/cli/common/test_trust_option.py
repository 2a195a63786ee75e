"""Code of others, as commands meet it: a file that leaves a mark when it is run, named by a recipe and by a run."""

import io
import os
import pty
import select
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import unisono
from support.cli.forked_command import forked
from unisono.cli.common import trust_option
from unisono.cli.common.submission import Submission
from unisono.cli.common.trust_option import confirm_trust
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.process_rank import Placement
from unisono.errors import UserError
from unisono.launch.machine_options import MachineOptions
from unisono.launch.slurm.options import JobOptions
from unisono.recipe import Recipe
from unisono.runs.lifecycle import RunLifecycle
from unisono.runs.run_modes import launched, multi_machine
from unisono.storage.resume import recipe_of
from unisono.trust import Trust
from unisono.world import World

TRIPWIRE = """
from pathlib import Path
Path({mark!r}).touch()
import numpy as np
def data(): return {{"train_x": np.eye(24), "train_y": [0, 1, 2] * 8, "test_x": np.eye(24), "test_y": [0, 1, 2] * 8}}
def net(): raise SystemExit("not needed here")
"""
SMALL = ["--model", "mlp:5", "--batch-size", "6", "--ranks", "1", "--epochs", "1"]
ON = ["--epochs", "2", "--allow-change", "epochs"]

pytestmark = pytest.mark.usefixtures("no_price")


@pytest.fixture(scope="module")
def there(tmp_path_factory) -> Path:
    """A stranger's directory: code, a recipe that names it, and a run of it."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "evil.py").write_text(TRIPWIRE.format(mark=str(folder / "tripped")))
    ended = forked("train", "--data", "evil.py:data", *SMALL, "--snapshot-every", "1epoch", "--out", "run", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    (folder / "recipe.toml").write_text(f'data = "{folder}/evil.py:data"\nmodel = "mlp:5"\nbatch_size = 6\n')
    (folder / "both.toml").write_text(f'data = "{folder}/evil.py:data"\nmodel = "{folder}/evil.py:net"\n')
    return folder


@pytest.fixture
def mark(there) -> Iterator[Path]:
    """There after the code was run; not there yet."""
    (there / "tripped").unlink(missing_ok=True)
    yield there / "tripped"
    (there / "tripped").unlink(missing_ok=True)


@pytest.fixture
def here(tmp_path, there, monkeypatch) -> Path:
    """The working directory, with a copy of the run in it. No SLURM."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(there / "run", tmp_path / "runs" / "theirs")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("report runs/theirs --out page.html", 0),
        ("watch runs/theirs --until-end --no-open", 0),
        ("weights runs/theirs", 0),
        ("weights runs/theirs --export weights.npz", 0),
        ("train {there}/both.toml --write-recipe mine.toml", 0),
        ("train --resume runs/theirs --write-recipe mine.toml", 0),
        ("submit {there}/both.toml --dry-run", 0),
        ("submit {there}/both.toml --dry-run --trust", 0),
        ("submit --resume runs/theirs --dry-run", 0),
        ("scale {there}/both.toml --grid 1x1 --dry-run", 0),
        ("compare {there}/both.toml --over ranks=1,2 --dry-run", 0),
        ("predict {there}/both.toml --dry-run", 2),
        ("train --help", 0),
    ],
)
def test_what_never_runs_code(words, code, there, here, mark):
    ended = forked(*words.format(there=there).split(), cwd=here)
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
    assert not mark.exists()


def test_a_run_that_is_read_in_python_runs_no_code(here, mark):
    assert unisono.load("runs/theirs").summary["data"] == "evil.py:data"
    assert not mark.exists()


@pytest.mark.parametrize(
    "words",
    [
        "train {there}/recipe.toml",
        "train {there}/recipe.toml --model mlp:7",
        "train --resume runs/theirs",
        "train --resume {there}/run",
        "train --resume runs/theirs --data evil.py:data",
        "submit {there}/recipe.toml --mem 1G",
        "submit --resume runs/theirs --mem 1G",
        "scale {there}/recipe.toml --grid 1x1",
        "compare {there}/recipe.toml --over ranks=1,2",
        "predict {there}/recipe.toml",
        "tune {there}/recipe.toml",
        "profile {there}/recipe.toml",
    ],
)
def test_code_outside_the_working_directory_is_named_and_not_run(words, there, here, mark):
    more = ON if words.startswith("train --resume") else []
    before = sorted(path for path in here.rglob("*") if path.name != ".lock")
    ended = forked(*words.format(there=there).split(), *more, cwd=here)
    assert ended.returncode == 2, ended.stderr
    assert not mark.exists()
    assert ended.stderr.startswith("unisono: this would run code that you have not named; nothing was run:\n")
    assert f"'{there}/evil.py', " in ended.stderr
    assert "named by data = '" in ended.stderr
    assert "/recipe.toml'\nHINT: read it; --trust runs it\n" in ended.stderr
    assert sorted(path for path in here.rglob("*") if path.name != ".lock") == before


def test_code_in_the_run_that_is_resumed_is_named_and_not_run(there, here, mark):
    shutil.copy(there / "evil.py", "runs/theirs")
    Path("evil.py").symlink_to("runs/theirs/evil.py")  # as the recipe calls it
    ended = forked("train", "--resume", "runs/theirs", *ON, cwd=here)
    assert ended.returncode == 2, ended.stderr
    assert f"'{here}/runs/theirs/evil.py' (through the link 'evil.py'), in the run that is resumed" in ended.stderr
    assert not mark.exists()


def test_with_trust_it_runs(here, mark):
    ended = forked("train", "--resume", "runs/theirs", "--trust", *ON, cwd=here)
    assert ended.returncode == 0, ended.stderr
    assert mark.exists()


def test_everyday_runs_are_resumed_without_a_question(there, here, mark):
    shutil.copy(there / "evil.py", here)
    ended = forked("train", "--resume", "runs/theirs", *ON, cwd=here)
    assert ended.returncode == 0, ended.stderr
    assert mark.exists()


@pytest.mark.parametrize("words", [["--data", "{there}/evil.py:data"], ["plain.toml"]], ids=["option", "recipe"])
def test_what_is_named_here_or_lies_here_runs_without_a_question(words, there, here, mark):
    shutil.copy(there / "evil.py", here)
    (here / "plain.toml").write_text('data = "evil.py:data"\nmodel = "mlp:5"\n')
    ended = forked("submit", *(word.format(there=there) for word in words), cwd=here)
    assert "no SLURM on this machine" in ended.stderr
    assert mark.exists()  # to estimate the memory


def test_a_study_passes_trust_on_and_imports_nothing_from_the_working_directory(there, here, mark):
    (here / "numpy.py").write_text(f"open({str(here / 'shadow')!r}, 'w')\n")
    words = ["compare", f"{there}/recipe.toml", "--over", "ranks=1", "--repeat", "1", "--epochs", "1"]
    ended = forked(*words, "--trust", cwd=here)
    assert ended.returncode == 0, ended.stderr
    assert mark.exists()
    assert not (here / "shadow").exists()


@pytest.mark.parametrize(
    ("words", "job_trusts"),
    [
        ("{there}/recipe.toml --trust", True),
        ("--data {there}/evil.py:data", False),
        ("--resume runs/theirs --trust", True),
    ],
)
def test_a_job_is_given_what_it_needs(words, job_trusts, there, here, mark):
    ended = forked("submit", *words.format(there=there).split(), "--mem", "1G", "--job-name", "mine", cwd=here)
    assert "no SLURM on this machine" in ended.stderr
    assert (" --trust" in (here / "mine.sbatch").read_text().partition("launch() {")[2]) == job_trusts
    assert not mark.exists()  # the memory was given


def test_a_yes_to_submit_is_passed_on_to_the_job(there, here, monkeypatch, capsys):
    from unisono.cli.main import app

    monkeypatch.setattr(trust_option, "_ask", lambda untrusted: True)
    with pytest.raises(UserError, match="no SLURM"):
        app(["submit", f"{there}/recipe.toml", "--mem", "1G"], exit_on_error=False, result_action="return_value")
    assert f"{there}/recipe.toml --trust" in (here / "recipe.sbatch").read_text()


def test_a_job_of_a_study_has_trust(there, here):
    text = Submission(f"{there}/recipe.toml", {}, JobOptions(mem="1G"), trusted=True).script()
    assert "recipe.toml --trust --ranks" in text


def test_a_dry_run_says_what_it_leaves_open(there, here, mark):
    ended = forked("submit", f"{there}/recipe.toml", "--dry-run", cwd=here)
    assert ended.stdout.startswith("#!/bin/bash\n")
    assert "--mem=" not in ended.stdout
    assert f"Note: '{there}/evil.py:data' was not run, so it is not checked, and the memory" in ended.stderr
    assert f"Note: the job needs --trust, or your yes, to run\n'{there}/evil.py', outside" in ended.stderr
    told = forked("submit", f"{there}/recipe.toml", "--dry-run", "--mem", "1G", "--trust", cwd=here).stderr
    assert told == f"Note: '{there}/evil.py:data' was not run, so it is not checked; unisono submit does that.\n"


@contextmanager
def terminal(*names: str) -> Iterator[int]:
    """Those of standard input and standard error are a terminal; the other end of it."""
    leader, follower = pty.openpty()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:  # no fixture: pytest has streams for each phase
        stack.callback(os.close, leader)
        stack.callback(os.close, follower)
        for name in ("stdin", "stderr"):
            patch.setattr(sys, name, stack.enter_context(open(os.devnull, "r+")))
        for name in names:
            patch.setattr(sys, name, stack.enter_context(open(os.dup(follower), "r" if name == "stdin" else "w")))
        yield leader


def asked_on(other_end: int) -> str:
    """What a terminal shows, up to the question. The kernel may take its time to pass it on."""
    shown = b""
    while b"Run it? [y/N] " not in shown:
        assert select.select([other_end], [], [], 30.0)[0], f"there was no question: {shown!r}"
        shown += os.read(other_end, 4096)
    return shown.decode(errors="replace")


def confirmed(there: Path) -> bool:
    recipe = Recipe.from_options(data=f"{there}/evil.py:data")
    return confirm_trust(Trust.of(recipe, [], "recipe.toml"), recipe)


@pytest.mark.parametrize("answer", [b"y\n", b"Yes\n"])
def test_a_yes_on_a_terminal_is_trust(answer, there, here):
    with terminal("stdin", "stderr") as other_end:
        os.write(other_end, answer)
        assert confirmed(there)
        assert f"'{there}/evil.py', outside" in asked_on(other_end)


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"\x04", b"\xff\n"], ids=["n", "nothing", "end", "no text"])
def test_anything_else_is_no(answer, there, here):
    with terminal("stdin", "stderr") as other_end:
        os.write(other_end, answer)
        with pytest.raises(UserError, match="nothing was run"):
            confirmed(there)
        assert asked_on(other_end)


def test_ctrl_c_is_no(there, here, monkeypatch):
    class Interrupted(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, size: int = -1) -> str:
            raise KeyboardInterrupt

    with terminal("stderr"):
        monkeypatch.setattr(sys, "stdin", Interrupted())  # without a descriptor, which is an OSError as well
        with pytest.raises(UserError, match="nothing was run"):
            confirmed(there)


@pytest.mark.parametrize(
    ("names", "ahead"),
    [(["stdin"], 0), (["stderr"], 0), (["stdin", "stderr"], 1)],
    ids=["stdin", "stderr", "background"],
)
def test_nobody_is_asked_who_could_not_answer(names, ahead, there, here, monkeypatch):
    """Whoever reads from its terminal in the background is stopped."""
    monkeypatch.setattr(os, "tcgetpgrp", lambda fd: os.getpgrp() + ahead)
    with terminal(*names) as other_end:
        os.write(other_end, b"y\n")
        with pytest.raises(UserError, match="nothing was run"):
            confirmed(there)


def test_ranks_of_another_launcher_leave_together_and_one_says_why(there, here, mark):
    recipe = recipe_of("runs/theirs", {"epochs": 2, "allow_change": "epochs"})
    trust = Trust.of(recipe, [], "runs/theirs/recipe.toml")

    def work(world: World) -> list[Any]:
        place = Placement(world.rank, 3, world.rank, 3, 0, 1, None, "a test")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launched, "connect", lambda *given: nullcontext(world.comm))
            try:
                RunLifecycle(recipe, launched.LaunchedMode(place, RendezvousOptions()), trust=trust).run()
            except UserError as error:
                return [error.exit_code, "" if error.shown else str(error)]
        return [0, ""]

    first, *others = unisono.run(work, 3, timeout_s=60.0)
    assert first[0] == 2
    assert f"'{there}/evil.py', which is not here: a snapshot says" in first[1]
    assert others == [[2, ""], [2, ""]]
    assert not mark.exists()


def test_a_machine_does_not_run_what_another_one_tells_it_to(there, here, mark, monkeypatch):
    """Without --trust on this machine: the first one decides what is resumed, and from which files."""
    asked = Recipe.from_options(data="evil.py:data", ranks=1)

    class FirstMachine:
        def __init__(self, options: MachineOptions, facts: dict[str, Any]) -> None:
            self.facts, self.told = (
                facts,
                [{"changed": {"data": f"{there}/evil.py:data"}, "position": 0, "anew": False}],
            )

        def join(self) -> list[dict[str, Any]]:
            return [self.facts, self.facts]

        def share(self, find: Any) -> list[Any]:
            return [self.told.pop()] if self.told else [find()]

        def close(self) -> None:
            pass

    monkeypatch.setattr(multi_machine, "ExchangerProcess", FirstMachine)
    monkeypatch.setattr(multi_machine, "require", lambda transport: None)
    where = MachineOptions(num_nodes=2, node_id=1, main_address="127.0.0.1", ranks_per_node=1)
    with pytest.raises(UserError, match=r"(?s)nothing was run.*evil\.py', which is not here: a snapshot says"):
        RunLifecycle(asked, multi_machine.MultiMachineMode(where), trust=Trust.of(asked, ["data"], "")).run()
    assert not mark.exists()


def test_a_launcher_that_starts_a_run_again_needs_no_more_than_before(there, here, monkeypatch):
    """The run that it goes on with is its own."""
    monkeypatch.chdir(there)
    recipe = Recipe.from_options(data="evil.py:data", model="mlp:5", out="run")
    resumed = recipe.with_options(resume="run", out="")
    assert Trust.of(recipe, [], "recipe.toml").untrusted(resumed) == []
