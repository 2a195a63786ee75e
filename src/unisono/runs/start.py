"""Where a run starts: from the beginning or from a snapshot, and what is refused.

    find_start(recipe, restarts=1, found=[])

The one idea: the first process of a run finds out where it starts, as plain values, and the others are told.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from unisono.errors import UserError
from unisono.recipe import Recipe, flag
from unisono.storage.path_resolution import FILES
from unisono.storage.resume import after_restart, as_saved, find_snapshot
from unisono.storage.rundir import RunDirectory
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.strategies.registry import of
from unisono.terminal import print


def find_start(
    recipe: Recipe, restarts: int, found: list[Snapshot], say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Where all processes start: the options that change, the position, and whether it is from the beginning in the
    run's old directory. Empty: there is nothing left to do. found: where the snapshot is put, if there is one."""
    again = after_restart(recipe, restarts)
    if again.message:
        say(again.message)
    if again.finished:
        return {}
    if again.recipe.faults.resume:  # the snapshots of a run that is going on come and go while one looks at them
        RunDirectory.check_unused(Path(again.recipe.faults.resume))
    snapshot = find_snapshot(again.recipe)
    found.extend([snapshot] if snapshot else [])
    saved = as_saved(again.recipe, snapshot)
    for name in FILES:
        given, taken = again.recipe.option(name), saved.option(name)
        if taken != given:
            say(f"{flag(name)} {given} is not here: taken from {taken}")
    changed = {name: saved.option(name) for name in ("resume", "out", "allow_change", "shards", "engine", *FILES)}
    return {"changed": changed, "anew": again.anew, "position": snapshot.position if snapshot else 0}


def refuse_snapshots(recipe: Recipe) -> None:
    """Options that need the arena, or replicas that another launcher started."""
    for name in ("resume", "snapshot_every"):
        if recipe.option(name):
            raise UserError(
                f"{flag(name)} needs the arena that ranks started by unisono train share",
                hint=f"leave --transport out: unisono train --ranks {recipe.ranks.count}; or start it with mpirun or "
                "torchrun"
                if of(recipe).asynchronous
                else "leave out --transport, --allreduce and --strategy; or start it with mpirun or torchrun",
            )


def check_nodes(recipe: Recipe, nodes: int) -> None:
    """Refuses what cannot be done across nodes."""
    if nodes > 1 and recipe.model.sync_batchnorm:
        raise UserError(
            f"--sync-batchnorm exchanges statistics in shared memory, and these ranks are on {nodes} nodes",
            hint="leave it out, or use the ranks of one node",
        )
    if nodes > 1 and of(recipe).state_in_parts(nodes) and (recipe.faults.resume or recipe.faults.snapshot_every):
        raise UserError(
            f"snapshots of --strategy {recipe.strategy.name} on {nodes} nodes: each has the states of its own "
            "replicas only",
            hint="leave --resume and --snapshot-every out, or use the ranks of one node",
        )
