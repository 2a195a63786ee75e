"""A relay: a run whose whole process group is killed at random times, and that others go on with, for `chaos.py`.

The one idea: whatever moment is hit, a snapshot being written included, the next runner finds a whole snapshot or none
was ever finished; and whoever comes to the end, on however many ranks, has the weights of the quiet run.

    found = relay(Path("runs/relay"), FAST, random.Random(1), kills=200); found.wrong == []

Every runner has another number of ranks. When a run has come to its end, the next one starts anew.
"""

import json
import random
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

from torment import Run

from unisono.errors import UnisonoError
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.storage.resume import recipe_of
from unisono.storage.snapshots.snapshot import newest

FAST = Recipe.from_options(epochs=40, snapshot_every="1steps")
PATIENCE_S = 120.0
"""How long the one has that may come to the end. The others have up to half of the time of the quiet run."""


SHA = "weights_sha256"


@final
@dataclass
class Relayed:
    """What came of it."""

    kills: int = 0
    resumes: int = 0
    """Runners that went on from a snapshot."""
    drafts: int = 0
    """Kills in the middle of writing a snapshot."""
    finished: int = 0
    wrong: list[str] = field(default_factory=list)
    """Whatever should not have been."""


def relay(folder: Path, recipe: Recipe, rng: random.Random, kills: int) -> Relayed:
    """Until there were so many kills, and then to the end."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    found, expected = Relayed(), _quiet(folder, recipe)
    longest_s = (time.monotonic() - begun) / 2
    run: Path | None = None
    ranks = starts = 0
    while found.kills < kills or run is not None:
        ranks = rng.choice([count for count in (1, 2, 3, 4) if count != ranks])
        if run is None:
            starts += 1
            run = folder / f"run-{starts}"
            work = partial(run_recipe, recipe.with_options(ranks=ranks, out=str(run)))
        else:
            found.resumes += 1
            work = partial(_resume, run, ranks)
        with Run(work, folder / "log.txt") as runner:
            if runner.running(rng.uniform(0.0, longest_s) if found.kills < kills else PATIENCE_S):
                runner.kill()
                found.kills += 1
            killed = runner.code() == -signal.SIGKILL
            if killed and not summary_of(run):
                run = _after_a_kill(run, found)
            else:  # a kill may come when all is written down already
                found.finished += 1
                if (runner.code() and not killed) or summary_of(run).get(SHA) != expected:
                    told = (folder / "log.txt").read_text()[-2000:]
                    found.wrong.append(f"{run.name} on {ranks} ranks: exit code {runner.code()}: {told}")
                run = None
    return found


def _resume(run: Path, ranks: int) -> object:
    return run_recipe(recipe_of(str(run), {"ranks": ranks}))


def _after_a_kill(run: Path, found: Relayed) -> Path | None:
    """The run, if there is something to go on from."""
    snapshots = newest(run / "snapshots")
    found.wrong += [f"{path}: {reason}" for path, reason in snapshots.rejected]
    found.drafts += any((run / "snapshots").glob(".draft-*"))
    return run if snapshots.snapshot else None


def summary_of(run: Path) -> dict[str, Any]:
    """What a run found; empty if it did not finish."""
    path = run / "summary.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _quiet(folder: Path, recipe: Recipe) -> str:
    with Run(partial(run_recipe, recipe.with_options(out=str(folder / "quiet"))), folder / "log.txt") as runner:
        runner.running(PATIENCE_S)
    if SHA not in (found := summary_of(folder / "quiet")):
        raise UnisonoError(f"the quiet run failed: {(folder / 'log.txt').read_text()[-2000:]}")
    return str(found[SHA])
