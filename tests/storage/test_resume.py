"""Which snapshot a run goes on from, and when it is refused; whole commands, in this process."""

import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.training.snapshot_waits import every_snapshot
from unisono.comm.serial import SerialCommunicator
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.process_rank import Placement
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.runs.lifecycle import RunLifecycle, run_recipe
from unisono.runs.run_modes import launched
from unisono.runs.snapshots.saver import check_data
from unisono.storage.resume import (
    FIXED,
    FREE,
    ResumePlan,
    after_restart,
    check_same,
    damaged_notes,
    find_snapshot,
    recipe_of,
)
from unisono.storage.snapshots import manifest as manifests
from unisono.storage.snapshots.manifest import Manifest
from unisono.storage.snapshots.snapshot import Snapshot, listed, newest, number_of
from unisono.training.fingerprint import fingerprint
from unisono.training.job import Job, prepare

pytestmark = pytest.mark.usefixtures("no_price")

RECIPE = Recipe.from_options(epochs=3, ranks=2, snapshot_every="10steps", keep=3)  # 23 steps an epoch


def as_rank(recipe: Recipe) -> None:
    """The recipe as the only rank of another launcher's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launched, "connect", lambda *given: nullcontext(SerialCommunicator()))
        RunLifecycle(recipe, launched.LaunchedMode(Placement.alone(), RendezvousOptions())).run()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run that came to its end, with snapshots of it at 40, 50 and 60 steps."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with every_snapshot():
        run_recipe(RECIPE.with_options(out=str(path)))
    return path


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy of it that did not."""
    path = tmp_path / "run"
    path.mkdir()
    for entry in finished.rglob("*"):
        target = path / entry.relative_to(finished)
        if entry.is_dir():
            target.mkdir()
        elif entry.name not in ("summary.json", ".lock"):
            target.write_bytes(entry.read_bytes())
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {str(entry): entry.read_bytes() for entry in path.rglob("*") if entry.is_file()}


def records(path: Path) -> list[dict]:
    """metrics.jsonl without the times."""
    lines = (json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if not name.endswith("_s")} for line in lines]


def summary_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "summary.json").read_text())


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_resumed_run_leaves_what_an_uninterrupted_one_leaves(finished, run, ranks):
    newest = str(listed(run / "snapshots")[0])
    summary = run_recipe(recipe_of(str(run), {"ranks": ranks}))
    expected = summary_of(finished)
    assert summary["weights_sha256"] == expected["weights_sha256"]
    assert summary["resumed_from"] == newest
    assert summary["epochs_timed"] < summary["epochs"]
    assert records(run) == records(finished)
    for name in ("epochs", "steps", "samples", "train_loss", "test_loss", "test_accuracy", "status", "stopped_early"):
        assert summary[name] == expected[name], name
    assert (run / "weights.safetensors").read_bytes() == (finished / "weights.safetensors").read_bytes()
    assert {entry.name for entry in run.iterdir()} == {entry.name for entry in finished.iterdir()}


def test_a_run_that_goes_on_on_another_processor_says_that_bits_may_differ(run, capsys, monkeypatch):
    monkeypatch.setattr("unisono.runs.recorder.fingerprint", lambda threads: fingerprint(threads) | {"cpu": "Z80"})
    run_recipe(recipe_of(str(run), {}))
    told = capsys.readouterr().err
    assert re.search(r"not all is as it was at the snapshot, so bits may differ: the processor: .* then, Z80 now", told)


def test_a_damaged_snapshot_is_named_and_the_one_before_it_is_used(finished, run, capsys):
    """What damage is found: `snapshots/test_damage.py`."""
    newest, before, *_ = listed(run / "snapshots")
    (newest / "manifest.json").unlink()
    summary = run_recipe(recipe_of(str(run), {}))
    assert summary["resumed_from"] == str(before)
    told = rf"unisono: the snapshot {newest.name} cannot be used: manifest\.json.*; the one before"
    assert re.search(told, capsys.readouterr().err)
    assert summary["weights_sha256"] == summary_of(finished)["weights_sha256"]


@pytest.mark.parametrize("restarted", [False, True])
def test_none_usable_is_refused_and_nothing_is_changed(run, monkeypatch, restarted):
    for path in listed(run / "snapshots"):
        (path / "params.safetensors").write_bytes(b"")
    if restarted:
        monkeypatch.setattr("unisono.runs.lifecycle.detect", lambda: replace(Placement.alone(), restarts=1))
    before = contents(run)
    with pytest.raises(UserError, match=r"(?s)no snapshot in .* can be used:\n.*params.*HINT: nothing was changed"):
        run_recipe(RECIPE.with_options(out=str(run)) if restarted else recipe_of(str(run), {}))
    assert contents(run) == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ranks": 3}, "the run is finished; nothing was changed"),
        ({"epochs": 2}, "--epochs 6 --allow-change epochs"),
        (
            {"epochs": 2, "allow_change": "epochs"},
            r"--epochs 2, but .* is finished, with 3 epochs.*\nHINT: give 3 or more",
        ),
    ],
    ids=str,
)
def test_a_finished_run_is_said_to_be_finished_and_nothing_is_changed(finished, options, told):
    before = contents(finished)
    with pytest.raises(UserError, match=told):
        run_recipe(recipe_of(str(finished), options))
    assert contents(finished) == before


@pytest.mark.parametrize("allowed", ["", "epochs"])
def test_a_finished_run_that_kept_nothing_says_so(tmp_path, allowed):
    run_recipe(RECIPE.with_options(snapshot_every="", out=str(tmp_path / "run")))
    with pytest.raises(UserError, match=r"(?s)the run is finished, and has kept nothing.*--snapshot-every"):
        run_recipe(recipe_of(str(tmp_path / "run"), {"epochs": 9, "allow_change": allowed}))


def test_epochs_that_the_records_lack_are_told(run, capsys):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[1:]))
    run_recipe(recipe_of(str(run), {}))
    assert "unisono: metrics.jsonl lacks 1 epoch before that" in capsys.readouterr().err


def test_a_changed_recipe_is_refused_with_the_list_of_differences(run):
    before = contents(run)
    with pytest.raises(UserError) as caught:
        run_recipe(recipe_of(str(run), {"lr": 0.5, "seed": 3, "ranks": 1, "keep": 5}))
    assert "\n  --lr: 0.01 then, 0.5 now\n  --seed: 0 then, 3 now\n" in str(caught.value)
    assert str(caught.value).endswith("--allow-change lr,seed")
    assert contents(run) == before


def test_what_is_allowed_by_name_may_change(finished, run):
    summary = run_recipe(recipe_of(str(run), {"lr": 0.02, "epochs": 4, "allow_change": "lr, epochs"}))
    assert summary["epochs"] == 4
    assert summary["weights_sha256"] != summary_of(finished)["weights_sha256"]
    assert [record["epoch"] for record in records(run)] == [1, 2, 3, 4]
    assert records(run)[:2] == records(finished)[:2]


NEVER = {
    "model": "mlp:8", "data": "mnist", "batch_size": 32, "optimizer": "sgd", "drop_last": True, "engine": "torch",
    "dropout": 0.5, "normalise": "pixel",
}  # fmt: skip
LOCAL = {"strategy": "local", "sync_every": 4}
OTHER_RANKS = r"--ranks: 2 then, 3 now\nHINT: .* --allow-change ranks"
CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # What the snapshot would not fit.
    *(
        ({}, {name: value, "allow_change": name}, "cannot change within a run: leave it out")
        for name, value in NEVER.items()
    ),
    ({}, {"data": "synthetic", "model": "linear"}, "HINT: --data, --model cannot change within a run: leave them out"),
    # A seed that drew the validation part.
    ({}, {"seed": 3, "allow_change": "seed"}, ""),
    ({"validation": 0.2}, {"seed": 3, "allow_change": "seed"}, "--seed cannot change within a run"),
    # Ranks that decide the batch; replicas and workers on other ranks are another result, the arena's ranks are free.
    ({"batch_size_per_rank": 32}, {"ranks": 3}, "--ranks: 2 then, 3 now"),
    ({"batch_size_per_rank": 32}, {}, ""),
    ({"allreduce": "ring"}, {"ranks": 3}, OTHER_RANKS),
    ({"allreduce": "ring"}, {"ranks": 3, "allow_change": "ranks"}, ""),
    ({"strategy": "async"}, {"ranks": 3}, OTHER_RANKS),
    ({}, {"ranks": 3}, ""),
    # What replicas are.
    (
        LOCAL,
        {"strategy": "sync", "sync_every": "", "allow_change": "strategy,sync_every"},
        "cannot change within a run",
    ),
    (LOCAL, {"sync_every": 8, "allow_change": "sync_every"}, "cannot change within a run"),
    (LOCAL, {"shards": 4, "allow_change": "shards"}, "cannot change within a run"),
    # Fewer epochs than were reached.
    ({}, {"epochs": 1, "allow_change": "epochs"}, "--epochs 1, but run is in epoch 2"),
    ({}, {"allow_change": "epoch"}, "did you mean 'epochs'"),
]


@pytest.mark.parametrize(("then", "now", "told"), CHANGES, ids=str)
def test_what_may_change_within_a_run(then, now, told):
    recipe = RECIPE.with_options(**then)
    snapshot = Snapshot(Path("made up"), Manifest(30, {"recipe": recipe.options(), "epoch": 2}, {}))
    with pytest.raises(UserError, match=told) if told else nullcontext():
        check_same(recipe.with_options(**{"resume": "run"} | now), snapshot)


# --- started again by a launcher --------------------------------------------------------------------------------------


def again(run: Path, count: int = 1, **changes) -> ResumePlan:
    """The command that began `run`, started once more."""
    return after_restart(RECIPE.with_options(out=str(run), **changes), count)


def test_what_is_not_started_again_is_as_it_was(run):
    recipe = RECIPE.with_options(out=str(run))
    assert after_restart(recipe, 0) == ResumePlan(recipe)
    assert after_restart(recipe.with_options(resume="other"), 3).recipe.faults.resume == "other"


def test_started_again_it_goes_on_from_the_newest_snapshot(run):
    found = again(run, 2, ranks=5)
    assert (found.recipe.faults.resume, found.recipe.output.directory) == (str(run), "")
    assert not found.anew
    assert not found.finished
    assert found.message == "Started again by the launcher (restart 2)."
    assert find_snapshot(found.recipe).path == listed(run / "snapshots")[0]


def test_started_again_before_there_is_a_snapshot_it_begins_in_the_same_directory(run):
    for path in (run / "snapshots").iterdir():
        path.rename(run.parent / path.name)
    found = again(run, ranks=1)
    assert (found.anew, found.recipe.output.directory, found.recipe.faults.resume) == (True, str(run), "")
    assert found.message.endswith("from the beginning: no snapshot was written yet.")
    with pytest.raises(UserError, match=r"--lr: 0\.01 then, 0\.5 now"):
        again(run, lr=0.5)


def test_started_again_in_the_finished_run_of_another_recipe(finished):
    """The first attempt was refused, for --out is not empty, and a launcher does not look at why."""
    with pytest.raises(UserError, match=r"--lr: 0\.01 then, 0\.5 now"):
        again(finished, lr=0.5)


def test_started_again_with_nothing_to_go_on_with(finished, tmp_path):
    assert again(finished) == ResumePlan(
        RECIPE.with_options(out=str(finished)), f"{finished} is finished: nothing is left to do.", finished=True
    )
    nowhere = RECIPE.with_options(out=str(tmp_path / "new"))
    assert after_restart(nowhere, 1).recipe == nowhere
    assert "was not begun" in after_restart(nowhere, 1).message
    assert "without --out nobody knows" in after_restart(RECIPE, 1).message


@pytest.mark.parametrize("snapshots", [True, False])
def test_the_only_process_of_a_launcher_goes_on_too(finished, run, monkeypatch, capsys, snapshots):
    """Of a torchrun that was left with one: it starts ranks itself."""
    monkeypatch.setattr("unisono.runs.lifecycle.detect", lambda: replace(Placement.alone(), restarts=1))
    if not snapshots:
        (run / "snapshots").rename(run.parent / "elsewhere")
    summary = run_recipe(RECIPE.with_options(out=str(run)))
    assert ("from the beginning: no snapshot was written yet" in capsys.readouterr().out) == (not snapshots)
    assert bool(summary["resumed_from"]) == snapshots
    assert summary["weights_sha256"] == summary_of(finished)["weights_sha256"]
    assert records(run) == records(finished)
    assert run_recipe(RECIPE.with_options(out=str(run))) is None
    assert "is finished: nothing is left to do" in capsys.readouterr().out


def test_replicas_that_are_started_again_on_other_ranks_say_that_the_result_is_another_one(run):
    before = json.loads((listed(run / "snapshots")[0] / "manifest.json").read_text())["facts"]["recipe"]
    RECIPE.with_options(allreduce="ring").save(run / "recipe.toml")
    found = again(run, ranks=3, allreduce="ring")
    assert before["ranks"] == 2
    assert found.message.endswith("On 3 ranks instead of 2 the result is another one.")
    assert found.recipe.faults.allow_change == "ranks"


def test_files_are_found_again_from_another_directory(tmp_path, monkeypatch, capsys):
    """Twice: the second time the recipe has whole paths, and the snapshot the relative ones of the beginning."""
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    for folder in (there, elsewhere):
        folder.mkdir()
    rng = np.random.default_rng(0)
    np.savez(there / "rows.npz", train_x=rng.random((64, 3), np.float32), train_y=np.arange(64) % 2)
    monkeypatch.chdir(there)
    recipe = Recipe.from_options(
        data="rows.npz", model="mlp:4", epochs=3, ranks=1, batch_size=8, snapshot_every="3steps", out="run"
    )
    with every_snapshot():
        expected = run_recipe(recipe.with_options(keep=9))
    monkeypatch.chdir(elsewhere)
    run = there / "run"
    for _ in range(2):
        (run / "summary.json").unlink()
        for path in listed(run / "snapshots"):
            if number_of(path) > 10:  # as if it had been killed
                shutil.rmtree(path)
        found = run_recipe(recipe_of(str(run), {}))
        assert found["weights_sha256"] == expected["weights_sha256"]
        assert found["resumed_from"]
        assert recipe_of(str(run), {}).data.name == str(there / "rows.npz")
    told = capsys.readouterr().out
    assert told.count(f"--data rows.npz is not here: taken from {there}/rows.npz") == 1


def test_more_ranks_than_the_run_has_shards(run):
    """The hint is one that works."""
    hint = r"HINT: give --ranks 8 or less: .*--shards 9 --allow-change shards"
    with pytest.raises(UserError, match=hint):
        run_recipe(recipe_of(str(run), {"ranks": 9}))
    run_recipe(recipe_of(str(run), {"ranks": 9, "shards": 9, "allow_change": "shards"}))
    assert summary_of(run)["shards"] == 9


def test_every_option_that_may_or_cannot_change_is_one_of_a_recipe():
    assert not FREE & FIXED
    assert RECIPE.options().keys() >= FREE | FIXED


def test_what_is_no_run_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"is not a run directory: it has no recipe\.toml"):
        recipe_of(str(tmp_path), {})
    with pytest.raises(UserError, match=r"--resume .*nosuch: there is no such directory\nHINT: "):
        recipe_of(str(tmp_path / "nosuch"), {})
    RECIPE.save(tmp_path / "recipe.toml")
    with pytest.raises(UserError, match="holds no snapshot"):
        find_snapshot(recipe_of(str(tmp_path), {}))
    assert find_snapshot(RECIPE) is None


@pytest.mark.parametrize("lost", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_a_recipe_whose_file_was_lost_is_that_of_the_newest_snapshot(run, lost):
    before = recipe_of(str(run), {"keep": 7})
    lost(run / "recipe.toml")
    found = recipe_of(str(run), {"keep": 7})
    assert (found, found.faults.resume, found.faults.keep) == (before, str(run), 7)
    assert find_snapshot(found) is not None


@pytest.mark.parametrize("finished_since", [False, True])
def test_a_run_that_another_one_went_on_with_meanwhile_is_left_alone(finished, run, monkeypatch, finished_since):
    """Between the look for a snapshot and the lock."""
    newest, *_ = listed(run / "snapshots")
    hidden = run.parent / newest.name
    newest.rename(hidden)

    def ready(*given: Any) -> Any:
        if finished_since:
            shutil.copy(finished / "summary.json", run)
        else:
            hidden.rename(newest)
        before.update(contents(run))
        return prepare(*given)

    before: dict[str, bytes] = {}
    monkeypatch.setattr("unisono.runs.run_modes.supervised.prepare", ready)
    with pytest.raises(UserError, match="another unisono train has gone on with it meanwhile; nothing was changed"):
        run_recipe(recipe_of(str(run), {}))
    assert {name: data for name, data in contents(run).items() if not name.endswith("/.lock")} == before


def test_nothing_is_passed_over_when_the_newest_is_whole(run):
    assert damaged_notes(find_snapshot(recipe_of(str(run), {}))) == []


def test_a_run_whose_data_are_others_now_is_refused_by_its_parent_and_by_ranks(run, monkeypatch):
    monkeypatch.setattr(Job, "data_sha256", "of other data")
    before = contents(run)
    with pytest.raises(UserError, match="the training data are not those of the snapshot"):
        run_recipe(recipe_of(str(run), {}))
    with pytest.raises(UserError, match="the training data are not those of the snapshot"):
        as_rank(recipe_of(str(run), {"ranks": 1}))
    assert {name: data for name, data in contents(run).items() if not name.endswith("/.lock")} == before


@pytest.mark.parametrize("changed", ["validation_x", "validation_y", "test_x", "test_y"])
def test_a_run_whose_validation_or_test_data_are_others_now_is_refused(tmp_path, changed):
    """Early stopping would decide otherwise."""
    rng = np.random.default_rng(0)
    sizes = {"train": 53, "validation": 17, "test": 29}
    arrays = {f"{part}_x": rng.standard_normal((rows, 13)).astype(np.float32) for part, rows in sizes.items()}
    arrays |= {f"{part}_y": rng.integers(0, 3, rows) for part, rows in sizes.items()}
    data = tmp_path / "data.npz"
    np.savez(data, **arrays)
    out = tmp_path / "run"
    recipe = Recipe.from_options(
        epochs=2, ranks=1, batch_size=24, data=str(data), model="mlp:5", out=str(out), normalise="none"
    )
    run_recipe(recipe.with_options(snapshot_every="1epochs"))
    more = recipe_of(str(out), {"epochs": 3, "allow_change": "epochs"})
    arrays[changed][3] = (arrays[changed][3] + 1) % 3
    np.savez(data, **arrays)
    before = contents(out)
    with pytest.raises(UserError, match=r"the validation or test data are not those of the snapshot\nHINT: give"):
        run_recipe(more)
    with pytest.raises(UserError, match="the validation or test data are not those of the snapshot"):
        as_rank(more)
    assert contents(out) == before


def test_a_snapshot_of_before_that_was_kept_is_resumed_with_a_word_about_it(finished, run, capsys):
    path = newest(run / "snapshots").require().path
    manifest = manifests.read(path)
    del manifest.facts["evaluation_data"]
    (path / manifests.FILE).write_bytes(manifests.sealed(manifest))
    run_recipe(recipe_of(str(run), {}))
    told = "the snapshot does not say which validation and test data the run had: they are not compared"
    assert capsys.readouterr().err.count(told) == 1
    assert summary_of(run)["weights_sha256"] == summary_of(finished)["weights_sha256"]


@pytest.mark.parametrize("edited", ["mine.py", "layers.py"])
def test_a_network_whose_file_or_helper_was_edited_is_refused_unless_allowed(tmp_path, edited):
    (tmp_path / "mine.py").write_text("import layers\n")
    (tmp_path / "layers.py").write_text("WIDTH = 1\n")
    job = prepare(RECIPE)
    own = replace(job, recipe=job.recipe.with_options(model=f"{tmp_path}/mine.py:net"))
    facts = {"data": own.data_sha256, "code": own.code_sha256}
    snapshot = SimpleNamespace(facts=facts, path=tmp_path / "snapshots" / "1")
    check_data(own, snapshot)
    (tmp_path / edited).write_text("import layers\nWIDTH = 2\n")
    with pytest.raises(UserError, match=r"is not what it was when .* was made\nHINT: .*--allow-change model"):
        check_data(replace(own), snapshot)
    check_data(replace(own, recipe=own.recipe.with_options(allow_change="epochs,model")), snapshot)
    assert job.code_sha256 == ""


def test_the_code_of_a_network_is_that_of_the_start(tmp_path, monkeypatch):
    """Not of the first snapshot, which may come when somebody has edited it: torch is not needed to see it."""
    file = tmp_path / "mine.py"
    file.write_text("def net(): ...\n")
    monkeypatch.setattr("unisono.training.job.sha256_of", lambda path, source: source.decode())
    monkeypatch.setattr("unisono.training.job.choose_engine", lambda *given: "numpy")
    model = prepare(RECIPE).model()
    monkeypatch.setattr("unisono.training.job.build", lambda *given: model)
    job = prepare(RECIPE.with_options(model=f"{file}:net"))
    file.unlink()
    assert job.code_sha256 == "def net(): ...\n"
