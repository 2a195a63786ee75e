"""Resuming: which snapshot a run goes on from, and whether what is asked for is still the same run.

The one idea: a run is its recipe. Options that decide the result must be those of the snapshot, or be allowed to differ
by name; those that do not (ranks, places, how often to save) may differ freely.

    snapshot = find_snapshot(recipe)          # None without --resume
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from unisono.errors import UserError, unknown_name
from unisono.recipe import Recipe, load, option
from unisono.train.snapshot import Found, Snapshot, newest

FREE = {
    "ranks", "data_dir", "out", "resume", "allow_change", "respawn", "max_restarts", "stall_timeout", "snapshot_every",
    "keep", "log_ranks", "transport",
}  # fmt: skip
"""Options that do not change the result."""
SNAPSHOTS = "snapshots"


def recipe_of(run: str, overrides: dict[str, Any]) -> Recipe:
    """The recipe of a run directory, with what is given on top."""
    path = Path(run).expanduser() / "recipe.toml"
    if not path.is_file():
        raise UserError(f"--resume {run} is not a run directory: it has no recipe.toml", hint="give that of a run")
    return load(str(path), {**overrides, "resume": run})


def find_snapshot(recipe: Recipe) -> Snapshot | None:
    """The newest whole snapshot of `--resume`; a `UserError` if there is none or the recipe is another one."""
    if not recipe.resume:
        return None
    found = newest(Path(recipe.resume).expanduser() / SNAPSHOTS)
    snapshot = found.require()
    check_same(recipe, snapshot)
    return snapshot


def rejected(found: Found) -> list[str]:
    """What to say of newer snapshots that could not be used."""
    return [f"{path.name} cannot be used: {reason}" for path, reason in found.rejected]


def check_same(recipe: Recipe, snapshot: Snapshot) -> None:
    """Refuses a recipe that would lead elsewhere, with the list of differences."""
    names = {entry.name for entry in fields(Recipe)}
    allowed = {name.strip().replace("-", "_") for name in recipe.allow_change.split(",") if name.strip()}
    for name in allowed - names:
        raise unknown_name("option in --allow-change:", name, sorted(names))
    saved, given = snapshot.facts["recipe"], asdict(recipe)
    given |= {name: saved.get(name) for name in ("shards", "engine") if not given[name] or given[name] == "auto"}
    changed = [
        f"  {option(name)}: {saved[name]!r} then, {given[name]!r} now"
        for name in sorted(names - FREE - allowed)
        if name in saved and saved[name] != given[name]
    ]
    if changed:
        told = "\n".join(changed)
        keys = ",".join(line.split(":")[0].strip().removeprefix("--") for line in changed)
        raise UserError(
            f"--resume {recipe.resume}: the recipe is not that of the snapshot:\n{told}",
            hint=f"leave these options out, or allow them to change: --allow-change {keys}",
        )
