"""What every run begins with, whoever starts its ranks: what it goes on from, and what is refused.

    go_on(recipe, restarts=1)

The one idea: the parent, another launcher's ranks and the supervisors of several machines must not differ in what they
go on from or refuse, so each asks here.
"""

from pathlib import Path
from typing import Any

from unisono.errors import UserError
from unisono.recipe import Recipe, option
from unisono.strategies.registry import of
from unisono.terminal import print
from unisono.train.located import FILES
from unisono.train.resuming import Again, after_restart, as_saved, find_snapshot
from unisono.train.rundir import RunDirectory
from unisono.train.snapshots.finding import Snapshot


def go_on(recipe: Recipe, restarts: int) -> Again:
    """How the run goes on if a launcher has started it again; said."""
    again = after_restart(recipe, restarts)
    if again.told:
        print(again.told, flush=True)
    return again


def check_unused(recipe: Recipe) -> None:
    """A `UserError` if the run that is resumed is going on: its snapshots come and go while one looks at them."""
    if recipe.resume:
        RunDirectory.check_unused(Path(recipe.resume))


def restored(recipe: Recipe, snapshot: Snapshot | None) -> Recipe:
    """As the snapshot has it; which files are taken from elsewhere is said."""
    saved = as_saved(recipe, snapshot)
    for name in FILES:
        if getattr(saved, name) != getattr(recipe, name):
            print(f"{option(name)} {getattr(recipe, name)} is not here: taken from {getattr(saved, name)}", flush=True)
    return saved


def look(recipe: Recipe, restarts: int, found: list[Snapshot]) -> dict[str, Any]:
    """What all go on from, as plain values; for one to find out and the others to be told. found: where the snapshot is
    put, if there is one. Empty: there is nothing left to do."""
    again = go_on(recipe, restarts)
    if again.finished:
        return {}
    check_unused(again.recipe)
    snapshot = find_snapshot(again.recipe)
    found.extend([snapshot] if snapshot else [])
    saved = restored(again.recipe, snapshot)
    changed = {name: getattr(saved, name) for name in ("resume", "out", "allow_change", "shards", "engine", *FILES)}
    return {"changed": changed, "anew": again.anew, "position": snapshot.position if snapshot else 0}


def refuse_faults(recipe: Recipe) -> None:
    """Options that need the arena, or replicas that another launcher started."""
    for name in ("resume", "snapshot_every"):
        if getattr(recipe, name):
            raise UserError(
                f"{option(name)} needs the arena that ranks started by unisono train share",
                hint=f"leave --transport out: unisono train --ranks {recipe.ranks}; or start it with mpirun or torchrun"
                if of(recipe).asynchronous
                else "leave out --transport, --allreduce and --strategy; or start it with mpirun or torchrun",
            )


def check_nodes(recipe: Recipe, nodes: int) -> None:
    """Refuses what cannot be done across nodes."""
    if nodes > 1 and recipe.sync_batchnorm:
        raise UserError(
            f"--sync-batchnorm exchanges statistics in shared memory, and these ranks are on {nodes} nodes",
            hint="leave it out, or use the ranks of one node",
        )
    if nodes > 1 and of(recipe).state_in_parts(nodes) and (recipe.resume or recipe.snapshot_every):
        raise UserError(
            f"snapshots of --strategy {recipe.strategy} on {nodes} nodes: each has the states of its own replicas only",
            hint="leave --resume and --snapshot-every out, or use the ranks of one node",
        )
