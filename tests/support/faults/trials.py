"""Trials: small runs under a fault plan, beside the same run with no fault.

    found = trial(monkeypatch, SMALL, kill_at(0, 2, COMMIT, "before")); found.check(quiet(SMALL))

The one idea: what a run has found is a hash and the numbers of its epochs, all but the times. Whatever happened to its
ranks, these must be those of the quiet run, to the last digit.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from support.faults.plans import Fault, Plan, go_on_when_all_are_there
from unisono.messages.rank_reports import EpochRecord, Report
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.supervise.config import SupervisorResult
from unisono.training.job import Job, prepare
from unisono.training.round_schedule import RoundSchedule

SMALL = Recipe.from_options(
    ranks=4,
    model="bn-mlp:300",  # 5,000 parameters: a block of 1024 for everybody, and buffers
    data="synthetic:classes=4,rows=90,features=8,test_rows=1100",  # five blocks of 256 to evaluate
    batch_size=32,  # three steps an epoch, the last one ragged
    epochs=2,
    optimizer="adam",
    clip=0.05,  # norms are needed
)
STEPS, CLOSING, FINAL = 3, 4, 9
"""Positions: 1 to 3 are steps, 4 closes the first epoch, 8 the second, 9 is the final round."""
PLAIN = SMALL.with_options(model="mlp:500", optimizer="momentum", clip=0.0, lr=0.1)
"""No norms, no buffers."""


@dataclass
class Found:
    """What a run left."""

    sha256: str = ""
    epochs: dict[int, dict[str, Any]] = field(default_factory=dict)
    told: list[int] = field(default_factory=list)
    """The epochs in the order in which they were told."""
    events: list[dict[str, Any]] = field(default_factory=list)
    outcome: SupervisorResult = field(default_factory=SupervisorResult)

    def check(self, quiet: "Found") -> None:
        assert self.epochs == quiet.epochs  # to the last digit
        assert self.sha256 == quiet.sha256

    def deaths(self) -> list[int]:
        """Of members and of replacements that did not live to join."""
        return [event["rank"] for event in self.events if event["kind"] in ("death", "newcomer")]


@cache
def job_of(recipe: Recipe) -> Job:
    return prepare(recipe)


def run(recipe: Recipe, places: RunPlaces | None = None, snapshot: Snapshot | None = None) -> Found:
    """A run in processes of its own, supervised by this one."""
    found = Found()

    def on_report(rank: int, record: Report) -> None:
        if not isinstance(record, EpochRecord):
            return
        numbers = {name: value for name, value in record.metrics.items() if not name.endswith("_s")}
        epoch = numbers["epoch"]
        assert found.epochs.setdefault(epoch, numbers) == numbers  # told twice, told the same
        found.told.append(epoch)

    supervised_run = SupervisedRun(job_of(recipe), places or RunPlaces())
    if snapshot is not None:
        supervised_run.resume(snapshot)
    found.outcome = supervised_run.train(on_report, lambda event: found.events.append(event.to_json()))
    (result, *_) = (result for result in found.outcome.results.values() if result)
    found.sha256 = result["weights_sha256"]
    names = ("train_loss", "test_loss", "test_accuracy", "epochs", "steps", "stopped_early")
    found.epochs[0] = {name: result[name] for name in names}
    return found


def quiet(recipe: Recipe) -> Found:
    """Without faults, and on one rank."""
    return _once(recipe.with_options(ranks=1))


_once = cache(run)


def resume(recipe: Recipe, snapshot: Snapshot) -> None:
    """What is left of a run is trained, and nothing else, and ends as if nothing had happened."""
    found, expected = run(recipe, snapshot=snapshot), quiet(recipe)
    schedule = RoundSchedule(job_of(recipe).plan.steps_per_epoch, recipe.learning.epochs)
    left = [epoch for epoch in expected.epochs if schedule.position(epoch, schedule.steps) > snapshot.position]
    assert found.epochs == {epoch: expected.epochs[epoch] for epoch in [*left, 0]}
    assert found.sha256 == expected.sha256


def trial(
    monkeypatch: Any, recipe: Recipe, *faults: Fault, places: RunPlaces | None = None, whole: bool = False
) -> Found:
    """All faults must strike; whoever was hit must be known. whole: nobody goes on before the lost are replaced."""
    plan = Plan(*faults).install(monkeypatch)
    if whole:
        go_on_when_all_are_there(monkeypatch)
    found = run(recipe, places)
    assert plan.fired() == [True] * len(faults), [
        fault for fault, fired in zip(faults, plan.fired(), strict=True) if not fired
    ]
    return found
