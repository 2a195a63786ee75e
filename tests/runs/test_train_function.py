"""`unisono.train`: the same run as the command makes, from Python, and what it gives back."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import unisono
from unisono.arena.sync.waiting import wait_until
from unisono.errors import RESUME_ME, RankFailed, UnisonoError, UserError
from unisono.report.html.document import MARKER
from unisono.runs.early_end import Halted
from unisono.runs.separate_process import answer_of, error_of
from unisono.supervise.config import SupervisorResult

pytestmark = pytest.mark.usefixtures("no_price")

SMALL = {
    "model": "mlp:8", "data": "synthetic:classes=4,rows=64,features=8,test_rows=32", "epochs": 2, "batch_size": 16,
}  # fmt: skip
RECIPE = unisono.Recipe.from_options(**SMALL)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Runs are made in the working directory."""
    monkeypatch.chdir(tmp_path)


def test_a_recipe_a_file_and_options_train_the_same_bits_as_the_command(tmp_path):
    RECIPE.save(tmp_path / "mine.toml")
    runs = [
        unisono.train(RECIPE, quiet=True),
        unisono.train(Path("mine.toml"), ranks=1, quiet=True),
        unisono.train("mine.toml", out=tmp_path / "there", quiet=True),
        unisono.train(**SMALL, ranks=3, quiet=True),
        unisono.train(RECIPE.with_options(epochs=7), epochs=2, quiet=True),
    ]
    command = [sys.executable, "-m", "unisono", "train", "mine.toml", "--out", "command"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    runs.append(unisono.load("command"))
    assert {run.summary["weights_sha256"] for run in runs} == {runs[0].summary["weights_sha256"]}
    assert [run.summary["ranks"] for run in runs] == [2, 1, 2, 3, 2, 2]
    assert runs[2].path == tmp_path / "there"


def test_what_a_run_shows_and_gives_back(tmp_path, capsys):
    unisono.train(RECIPE)
    assert "epoch 2/2" in capsys.readouterr().out
    run = unisono.train(RECIPE, quiet=True)
    assert capsys.readouterr() == ("", "")
    assert type(run) is unisono.Run
    assert run.metrics["epoch"].tolist() == [1, 2]
    assert run.summary == unisono.load(run.path).summary
    assert {name: array.shape for name, array in run.weights.items()} == {
        "0.W": (8, 8), "0.b": (8,), "2.W": (8, 4), "2.b": (4,),
    }  # fmt: skip
    assert MARKER in run.report().read_text()
    assert run.report() == run.path / "report.html"  # an older report is replaced
    assert MARKER in run.report(tmp_path / "other.html").read_text()
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(UserError, match=r"exists and is no report of unisono's"):
        run.report(tmp_path / "mine.html")
    if find_spec("torch"):
        assert tuple(run.state_dict()["0.weight"].shape) == (8, 8)  # torch's own names


def test_a_plot_has_a_curve_for_each_loss():
    run = unisono.train(RECIPE, validation=0.25, quiet=True)
    figure = run.plot()
    curves = {line.get_label(): line.get_xydata() for line in figure.axes[0].lines}
    assert list(curves) == ["train", "validation"]  # the test part is looked at once, at the end
    np.testing.assert_allclose(curves["validation"], np.stack([[1, 2], run.metrics["validation_loss"]], axis=1))
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_what_a_notebook_shows_is_escaped():
    run = unisono.train(RECIPE, out="<b>runs", quiet=True)
    shown = run._repr_html_()
    assert "Run &lt;b&gt;runs" in shown
    assert "<b>" not in shown
    assert "test accuracy" in shown
    assert "data:image/png;base64," in shown
    assert "no epoch has ended" in replace(run, metrics={}, problems=["no epoch has ended"])._repr_html_()


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        (None, {"modle": "mlp:8"}, "unknown key in the options: 'modle'"),
        (None, {"epochs": "many"}, "epochs in the options is 'many'"),
        (3, {}, "the recipe is 3\nHINT: give a Recipe, the path of a TOML file, or options"),
        ("there-is-none.toml", {}, "recipe 'there-is-none.toml': No such file"),
        (RECIPE, {"ranks": 0}, "--ranks is 0"),
        (RECIPE, {"batch_size": 32, "batch_size_per_rank": 8}, "both --batch-size and --batch-size-per-rank"),
        (RECIPE, {"model": "mlpx"}, "unknown model 'mlpx'"),
        (RECIPE, {"transport": "mpi"}, "--transport mpi, but no MPI started this process"),
        (None, {"resume": "nowhere"}, "--resume nowhere: there is no such directory"),
    ],
)
def test_mistakes_are_exceptions_and_leave_nothing(given, options, told, tmp_path):
    with pytest.raises(UserError) as caught:
        unisono.train(given, quiet=True, **options)
    assert told in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_code_that_a_file_names_elsewhere_needs_trust(tmp_path, monkeypatch):
    code = tmp_path / "there" / "data.py"
    code.parent.mkdir()
    code.write_text(
        "import numpy as np\n"
        "def load():\n"
        "    x = np.arange(256, dtype=np.float32).reshape(64, 4) / 256\n"
        "    return {'train_x': x, 'train_y': np.arange(64) % 2, 'test_x': x, 'test_y': np.arange(64) % 2}\n"
    )
    recipe = RECIPE.with_options(data=f"{code}:load")
    (tmp_path / "here").mkdir()
    recipe.save(tmp_path / "here" / "theirs.toml")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UserError, match="this would run code that you have not named; nothing was run"):
        unisono.train("theirs.toml", quiet=True)
    trusted = unisono.train("theirs.toml", trust=True, quiet=True)
    own = unisono.train(recipe, quiet=True)  # who writes the recipe has named it
    assert trusted.summary["weights_sha256"] == own.summary["weights_sha256"]


INTERRUPTED = """
import unisono
try:
    unisono.train(model="mlp:8", data="synthetic:classes=4,rows=64,features=8,test_rows=32", epochs=10**6, out="run")
except unisono.Halted as error:
    print("halted:", error.exit_code, error.snapshot, error, flush=True)
run = unisono.train(resume="run", epochs=unisono.load("run").metrics["epoch"][-1] + 1, allow_change="epochs")
print("finished:", run.summary["resumed_from"] is not None, flush=True)
"""


def test_ctrl_c_leaves_a_snapshot_to_go_on_from(tmp_path):
    """To the whole group, as a terminal sends it; `test_notebooks.py` has a process with threads of torch."""
    (tmp_path / "script.py").write_text(INTERRUPTED)
    started = subprocess.Popen(
        [sys.executable, "script.py"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        process_group=0,
    )  # fmt: skip
    try:
        assert wait_until((tmp_path / "run" / "metrics.jsonl").exists, 60.0)
        os.killpg(started.pid, signal.SIGINT)
        said, _ = started.communicate(timeout=100)
    finally:
        started.kill()
        started.wait()
        started.stdout.close()
    assert started.returncode == 0, said
    assert f"halted: {RESUME_ME} run/snapshots/" in said
    assert said.endswith("finished: True\n")


def test_the_run_of_a_process_with_threads_of_torch_raises_what_its_own_process_raised():
    halted = Halted(SupervisorResult(lost="rank 1 was lost", crashes=1, takeovers=2), "runs/a/snapshots/7")
    failed = RankFailed(1, "Traceback ...", kind="ValueError")
    mistake, failure = UserError("--ranks is 0", hint="give 1 or more"), UnisonoError("the loss became nan")
    failure.exit_code = RESUME_ME
    for error in (halted, failed, mistake, failure):
        again = error_of(json.loads(json.dumps(answer_of(error))), code=0)
        assert (again.message, again.hint) == (error.message, error.hint)
        assert getattr(again, "traceback", None) == getattr(error, "traceback", None)
        assert (type(again), str(again), again.exit_code) == (type(error), str(error), error.exit_code)
    assert error_of(answer_of(halted), 0).outcome.takeovers == 2
    assert type(error_of(answer_of(KeyboardInterrupt()), 0)) is KeyboardInterrupt
    assert str(error_of(answer_of(ZeroDivisionError("none")), 0)).endswith("ZeroDivisionError: none")
    assert "the process of the run was killed by SIGKILL" in str(error_of({}, -signal.SIGKILL))
