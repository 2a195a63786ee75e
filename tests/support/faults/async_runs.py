"""Asynchronous runs of five ranks, of which some end where a test wants it.

knife = Knife(rank=0, at=7, when="before").into(monkeypatch, Applying, "apply")
sha256, log, events = run(RECIPE); assert knife.struck; deaths(events) == [0]
"""

import mmap
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from support.strategies.async_reference import reference
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies.asynchronous.arena.strategy import AsyncArena
from unisono.strategies.asynchronous.sequencer import DROP, HELLO, PUSH
from unisono.training.job import prepare

RECIPE = Recipe.from_options(
    strategy="async", order="round-robin", ranks=5, masters=2, model="bn-mlp:300", batch_size=6, epochs=1,
    data="synthetic:classes=4,rows=90,features=8,test_rows=60", optimizer="momentum", lr=0.1,
)  # fmt: skip
PUSHES = 15


class Knife:
    """Ends the process of `rank` when it calls a method for the n-th time, before or after it is done.

    rank None: of any worker, when workers have called it n times.
    """

    def __init__(self, rank: int | None, at: int, when: str, spoil: Callable[..., None] = lambda *given: None) -> None:
        self.rank, self.at, self.when, self.spoil = rank, at, when, spoil
        self._memory = mmap.mmap(-1, 4096)  # calls; whether it struck
        self._counting = multiprocessing.get_context("fork").Lock()  # several workers may call it at once

    @property
    def struck(self) -> bool:
        return bool(self._memory[1])

    def into(self, monkeypatch: Any, cls: type, name: str) -> "Knife":
        method, live = getattr(cls, name), SupervisedRun._live
        me = [-1]

        def born(supervised_run: SupervisedRun, slot: int, *rest: Any) -> Any:
            me[0] = slot
            return live(supervised_run, slot, *rest)

        def called(this: Any, *given: Any) -> Any:
            mine = (me[0] == self.rank or (self.rank is None and me[0] >= RECIPE.strategy.masters)) and not self.struck
            now = False
            if mine:
                with self._counting:
                    self._memory[0] += 1
                    now = self._memory[0] == self.at
            if now and self.when == "before":
                self._strike(*given)
            found = method(this, *given)
            if now:
                self._strike(*given)
            return found

        monkeypatch.setattr(SupervisedRun, "_live", born)
        monkeypatch.setattr(cls, name, called)
        return self

    def _strike(self, *given: Any) -> None:
        self._memory[1] = 1
        self.spoil(*given)
        os.kill(os.getpid(), signal.SIGKILL)


def run(recipe: Recipe) -> tuple[str, list[Any], list[dict[str, Any]]]:
    """(hash, the log of the last epoch, events); every batch was used once."""
    events: list[dict[str, Any]] = []
    records: list[EpochRecord] = []
    supervised_run = SupervisedRun(prepare(recipe), RunPlaces())
    outcome = supervised_run.train(
        lambda rank, value: records.append(value) if isinstance(value, EpochRecord) else None,
        lambda event: events.append(event.to_json()),
    )
    async_buffers = supervised_run._hooks.setup.async_buffers
    log = [async_buffers.entry(number) for number in range(async_buffers.ordered(recipe.learning.epochs))]
    assert sorted(entry.batch for entry in log if entry.kind in (PUSH, DROP)) == list(range(PUSHES))
    assert records[-1].metrics["train_loss"] > 0
    assert sum(entry["samples"] for entry in records[-1].ranks) == 90
    return next(found for found in outcome.results.values() if found)["weights_sha256"], log, events


def of_log(recipe: Recipe, log: list[Any]) -> str:
    """The hash that one process comes to with the pushes of a log."""
    return reference(prepare(recipe), [[(entry.rank, entry.batch) for entry in log if entry.kind in (HELLO, PUSH)]])


def deaths(events: list[dict[str, Any]]) -> list[int]:
    return [event["rank"] for event in events if event["kind"] == "death"]


def lend(monkeypatch: Any) -> None:
    """Enough cores for everybody, so workers lend a hand; masters, which need not do anything, leave it to them."""
    monkeypatch.setattr("unisono.strategies.asynchronous.arena.strategy.usable_cores", lambda: 64)
    lent = AsyncArena._lend
    monkeypatch.setattr(AsyncArena, "_lend", lambda rank: rank._computes and lent(rank))
