"""Small runs whose ranks nobody watches over, forked.

found = train(prepare(SMALL), RunPlaces(snapshots=folder), events=events)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.arena.sync.waiting import wait_until
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.launched_training import Origin, train_launched
from unisono.runs.supervised_training import RunPlaces
from unisono.training.job import Job
from unisono.world import World

SMALL = Recipe.from_options(
    ranks=2, model="bn-mlp:40", data="synthetic:classes=4,rows=96,features=8,test_rows=64", batch_size=32, epochs=4,
    keep=99,
)  # fmt: skip
WAYS = ["arena", "ring"]


def every(text: str, recipe: Recipe = SMALL, **changes: Any) -> Recipe:
    """The recipe with snapshots that often."""
    return recipe.with_options(snapshot_every=text, **changes)


def train(
    job: Job,
    places: RunPlaces | None = None,
    snapshot: Any = None,
    events: list[dict[str, Any]] | None = None,
    at_step: Callable[[World, int], None] = lambda world, step: None,
) -> dict[str, Any]:
    """What every rank found, times left out; {"halted": ..., "code": ..., "steps": ...} if they were asked to end."""

    def work(world: World) -> dict[str, Any]:
        seen = {"step": 0}
        real = Job.lr

        def lr(job: Job, step: int) -> float:  # asked for at the beginning of each step, and once more of the last
            seen["step"] = step
            at_step(world, step)
            return real(job, step)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Job, "lr", lr)
            position = snapshot.position if snapshot else 0
            origin = Origin(position, snapshot if world.rank == 0 else None)
            try:
                found = train_launched(
                    world, job, places or RunPlaces(), origin, lambda event: world.report({"event": event.to_json()})
                )
            except Halted as halted:
                return {"halted": halted.snapshot, "code": halted.exit_code, "steps": seen["step"]}
        return {name: value for name, value in found.items() if not name.endswith(("_s", "_bytes"))}

    def hear(rank: int, value: Any) -> None:
        if events is not None and isinstance(value, dict):
            events.append(value["event"])

    found = unisono.run(work, job.recipe.ranks.count, on_report=hear, timeout_s=30.0)
    assert all(other == found[0] for other in found)
    return found[0]


class Departure:
    """Whether somebody leaves before the rank that is to be waited for is done; in files, for ranks are processes."""

    LATE_S = 0.3
    """How much later that rank is done than others would leave that do not wait for it."""

    def __init__(self, folder: Path) -> None:
        self._left, self._outrun = folder / "left", folder / "outrun"

    def leave(self) -> None:
        self._left.touch()

    def linger(self) -> None:
        if wait_until(self._left.exists, self.LATE_S):
            self._outrun.touch()

    def check(self) -> None:
        assert self._left.exists()
        assert not self._outrun.exists()
