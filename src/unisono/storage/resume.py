"""Resuming: which snapshot a run goes on from, and whether what is asked for is still the same run.

The one idea: a run is its recipe. Options that decide the result must be those of the snapshot, or be allowed to differ
by name; those that do not (ranks, places, how often to save) may differ freely.

    snapshot = find_snapshot(recipe)          # None without --resume

A launcher that starts all ranks again after one of them died (torchrun --max-restarts) runs the same command once more:
`after_restart` finds out what it goes on with.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from unisono.data.sources import IN_DATA_DIR
from unisono.errors import UserError, unknown_name
from unisono.files import expand_user, read_file
from unisono.parsing import parse_json
from unisono.recipe import OPTIONS, RUN_ONLY_OPTIONS, Recipe, flag
from unisono.recipe.reading import changed, load
from unisono.storage.path_resolution import CARRIED, FILES, inside, resolve_paths
from unisono.storage.run_files import check_run_directory
from unisono.storage.snapshots.facts import check_run
from unisono.storage.snapshots.snapshot import Snapshot, listed, newest, number_of, verified
from unisono.storage.snapshots.verified_files import Damaged
from unisono.strategies.registry import of, resolve

FREE = {
    "ranks", "data_dir", "out", "resume", "allow_change", "respawn", "max_restarts", "stall_timeout", "snapshot_every",
    "keep", "log_ranks", "tensorboard", "transport", "slow", "watts_per_core",
}  # fmt: skip
"""Options that do not change the result."""
FIXED = {
    "model", "data", "validation", "batch_size", "batch_size_per_rank", "drop_last", "optimizer", "allreduce",
    "strategy", "sync_every", "local_after", "engine", "dropout", "normalise",
}  # fmt: skip
"""Options that cannot change: what the snapshot holds, or where in the data it was made, would not fit."""
SNAPSHOTS = "snapshots"
_MOST_SUMMARY_BYTES = 16 << 20


def recipe_of(run: str, overrides: dict[str, Any]) -> Recipe:
    """The recipe of a run directory, with what is given on top; if its file is gone, that of the newest snapshot."""
    path = expand_user(run) / "recipe.toml"
    check_run_directory(path.parent)
    if named_in(run) == str(path):
        return _without_idle_directory(load(str(path), {**overrides, "resume": run}), overrides)
    if (snapshot := newest(path.parent / SNAPSHOTS).snapshot) is None:
        if not path.parent.exists():
            raise UserError(f"--resume {run}: there is no such directory", hint="give that of a run, such as runs/NAME")
        raise UserError(f"--resume {run} is not a run directory: it has no recipe.toml", hint="give that of a run")
    saved = {name: value for name, value in check_run(snapshot).facts["recipe"].items() if name not in RUN_ONLY_OPTIONS}
    return _without_idle_directory(changed(saved, {**overrides, "resume": run}, str(snapshot.path)), overrides)


def named_in(run: str) -> str:
    """The file that a resumed run's recipe is read from; that of its snapshots if it is gone."""
    path = expand_user(run) / "recipe.toml"
    return str(path) if path.is_file() and path.stat().st_size else str(path.parent / SNAPSHOTS)


def _without_idle_directory(recipe: Recipe, overrides: dict[str, Any]) -> Recipe:
    """Earlier versions took a --data-dir that the data do not read: a run that has one goes on without it."""
    if recipe.data.directory and not overrides.get("data_dir") and recipe.data.name not in IN_DATA_DIR:
        return recipe.with_options(data_dir="")
    return recipe


@final
@dataclass(frozen=True)
class ResumePlan:
    """How a run goes on that its launcher has started again."""

    recipe: Recipe
    """With `resume` instead of `out` if there is a snapshot."""
    message: str = ""
    """What to tell the user."""
    anew: bool = False
    """From the beginning, in the directory that is there."""
    finished: bool = False
    """There is nothing left to do."""


def after_restart(recipe: Recipe, count: int) -> ResumePlan:
    """What a run goes on with that was started again `count` times.

    The newest whole snapshot of --out, or the beginning if none was written; a `UserError` if that is another run's, or
    if all are damaged.
    """
    if not count or recipe.faults.resume:
        return ResumePlan(recipe)
    begins = f"Started again by the launcher (restart {count}), from the beginning:"
    if not recipe.output.directory:
        return ResumePlan(recipe, f"{begins} without --out nobody knows where its snapshots are.")
    run = expand_user(recipe.output.directory)
    if not (run / "recipe.toml").is_file():
        return ResumePlan(recipe, f"{begins} {recipe.output.directory} was not begun.")
    check_run_directory(run)
    # Nothing says who began the directory: one of another recipe is another run's, finished or not.
    saved = load(str(run / "recipe.toml"), {}).options()
    check_recipe(resolve(recipe).with_options(resume=recipe.output.directory, allow_change="ranks,shards"), saved)
    if _finished(run) is not None:
        return ResumePlan(recipe, f"{recipe.output.directory} is finished: nothing is left to do.", finished=True)
    found = newest(run / SNAPSHOTS)
    if found.snapshot is None:
        if found.rejected:  # they may be repaired, and a new start would write over them
            found.require()
        return ResumePlan(recipe, f"{begins} no snapshot was written yet.", anew=True)
    told = f"Started again by the launcher (restart {count})."
    if not _any_ranks(recipe) and (before := check_run(found.snapshot).facts["recipe"]["ranks"]) != recipe.ranks.count:
        told += f" On {recipe.ranks.count} ranks instead of {before} the result is another one."
    # If a launcher may change the number of ranks, replicas shall go on all the same.
    return ResumePlan(recipe.with_options(resume=recipe.output.directory, out="", allow_change="ranks"), told)


def find_snapshot(recipe: Recipe) -> Snapshot | None:
    """The newest whole snapshot of `--resume`; a `UserError` if there is none or the recipe is another one."""
    if not recipe.faults.resume:
        if recipe.faults.allow_change:
            raise UserError("--allow-change without --resume", hint="leave it out, or give the run to go on with")
        return None
    if recipe.output.directory:
        raise UserError(
            f"--out {recipe.output.directory} with --resume {recipe.faults.resume}: a run goes on in its own directory",
            hint="leave --out out; to keep the old one, copy it first",
        )
    run = expand_user(recipe.faults.resume)
    if (epochs := _finished(run)) is not None:
        _check_going_on(recipe, run, epochs)
    snapshot = check_run(newest(run / SNAPSHOTS).require())
    check_same(recipe, snapshot)
    return snapshot


def _check_going_on(recipe: Recipe, run: Path, epochs: int) -> None:
    """Refuses to go on with a run that is finished, after so many epochs, unless it is to be trained on."""
    told = f"--resume {recipe.faults.resume}: the run is finished"
    if not listed(run / SNAPSHOTS):
        raise UserError(
            f"{told}, and has kept nothing to train on from; nothing was changed",
            hint="look at its summary.json; a run with --snapshot-every can be trained on",
        )
    if not recipe.faults.allow_change:
        more = f"--epochs {2 * max(epochs, recipe.learning.epochs)} --allow-change epochs"
        raise UserError(f"{told}; nothing was changed", hint=f"look at its summary.json; or train on: {more}")
    if recipe.learning.epochs < epochs:
        raise UserError(
            f"--epochs {recipe.learning.epochs}, but {recipe.faults.resume} is finished, with {epochs} epochs, which "
            "would be lost; "
            "nothing was changed",
            hint=f"give {epochs} or more; or train anew, in another directory",
        )


def check_newest(recipe: Recipe, snapshot: Snapshot) -> None:
    """A `UserError` if the run went on since `snapshot` was found; for whoever keeps others from writing there."""
    newer = [path for path in listed(snapshot.path.parent) if number_of(path) > number_of(snapshot.path)]
    damaged = len(damaged_notes(snapshot))
    if len(newer) > damaged or (not recipe.faults.allow_change and _finished(snapshot.path.parents[1]) is not None):
        raise UserError(
            f"--resume {recipe.faults.resume}: another unisono train has gone on with it meanwhile; nothing was "
            "changed",
            hint="give the same command again, if there is anything left to do",
        )


def as_saved(recipe: Recipe, snapshot: Snapshot | None) -> Recipe:
    """With the snapshot's shards and engine where the recipe leaves them open, and files where they were then."""
    if snapshot is None:
        return recipe
    saved = snapshot.facts["recipe"]
    placed = resolve_paths(recipe, snapshot.facts.get("directory", ""))
    return resolve_paths(placed, os.path.abspath(snapshot.path.parents[1]), CARRIED).with_options(
        shards=recipe.ranks.shards or saved["shards"],
        engine=saved["engine"] if recipe.model.engine == "auto" else recipe.model.engine,
    )


def damaged_notes(snapshot: Snapshot) -> list[str]:
    """What to say of newer snapshots than the one that is used."""
    told = []
    for path in listed(snapshot.path.parent):
        if number_of(path) > number_of(snapshot.path):
            try:
                verified(path)
            except Damaged as error:
                told.append(f"the snapshot {path.name} cannot be used: {error.reason}")
    return told


def _finished(run: Path) -> int | None:
    """How many epochs a finished run has trained, 0 if it does not say; None: it is not finished."""
    with suppress(OSError, ValueError, AttributeError):
        summary = parse_json(read_file(run / "summary.json", _MOST_SUMMARY_BYTES, follow_links=False))
        epochs = summary.get("epochs")
        if summary.get("status") == "finished":
            return epochs if isinstance(epochs, int) else 0
    return None


def check_same(recipe: Recipe, snapshot: Snapshot) -> None:
    """Refuses a recipe that would lead elsewhere, with the list of differences."""
    check_recipe(recipe, snapshot.facts["recipe"], snapshot.facts.get("directory", ""))
    if recipe.learning.epochs < (reached := snapshot.facts["epoch"]):
        raise UserError(
            f"--epochs {recipe.learning.epochs}, but {recipe.faults.resume} is in epoch {reached}",
            hint=f"give {reached} or more",
        )


def check_recipe(recipe: Recipe, saved: dict[str, Any], directory: str = "") -> None:
    """Refuses one that differs from `saved`, the options of the run so far, in what decides the result.

    directory: where its files were, if they were named by relative paths.
    """
    names = set(OPTIONS)
    allowed = {name.strip().replace("-", "_") for name in recipe.faults.allow_change.split(",") if name.strip()}
    for name in allowed - names:
        known = (flag(one).removeprefix("--") for one in sorted(names - set(FREE)))
        raise unknown_name("option in --allow-change:", flag(name).removeprefix("--"), known)
    given = recipe.options()
    given |= {name: saved.get(name) for name in ("shards", "engine") if not given[name] or given[name] == "auto"}
    # A run that was resumed from elsewhere has whole paths in its recipe; its older snapshots have not.
    for name in FILES.keys() & saved:
        run = os.path.abspath(expand_user(recipe.faults.resume)) if recipe.faults.resume and name in CARRIED else ""
        if given[name] in (inside(name, saved[name], directory), inside(name, saved[name], run)):
            given[name] = saved[name]
    fixed, free = set(FIXED), set(FREE)
    if recipe.learning.batch_size_per_rank:  # the global batch follows the ranks
        fixed.add("ranks")
    if recipe.data.validation:  # which samples are those is drawn
        fixed.add("seed")
    if not _any_ranks(recipe):
        free.remove("ranks")
    if of(recipe).shards_are_replicas:
        fixed.add("shards")
    differing = [name for name in sorted(names - free) if name in saved and saved[name] != given[name]]
    refused = [name for name in differing if name in fixed or name not in allowed]
    if refused:
        told = "\n".join(f"  {flag(name)}: {saved[name]!r} then, {given[name]!r} now" for name in refused)
        keys = ",".join(flag(name).removeprefix("--") for name in differing)
        never = ", ".join(flag(name) for name in refused if name in fixed)
        raise UserError(
            f"--resume {recipe.faults.resume}: the recipe is not that of the run so far:\n{told}",
            hint=f"{never} cannot change within a run: leave {'them' if ', ' in never else 'it'} out"
            if never
            else f"leave these options out, or allow them to change: --allow-change {keys}",
        )


def _any_ranks(recipe: Recipe) -> bool:
    """Whether the result is the same on any number of ranks."""
    return of(recipe).supports.any_ranks and not recipe.learning.batch_size_per_rank
