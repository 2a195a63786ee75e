"""What to say of an asynchronous run: how stale its gradients were, how busy its masters, what to try next. Text only.

    found = Staleness(AsyncSetting("safe", masters=1, workers=3, classes=10)); found.add(record); found.notes(summary)

The one idea: enough numbers to answer why a server is split (masters are busy) and why more workers hardly help (they
wait for every master, and gradients get staler).
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.report.run.outcome_and_advice import plural, readable_s

BUSY, GUESSING, DROPPED, SLOW = 0.7, 1.5, 0.05, 1.5
"""Share of the time from which on masters, or computing, limit a run; accuracy, in multiples of chance, up to which it
is a guess; share of dropped pushes that is worth a word; times that a worker's pushes take as long as the others', from
which on it is slow."""


@final
@dataclass(frozen=True)
class AsyncSetting:
    """Who works how."""

    rule: str
    masters: int
    workers: int
    classes: int
    """Of the data; 0: numbers to predict."""
    order: str = "free"

    @classmethod
    def of(cls, recipe: Recipe, classes: int) -> "AsyncSetting":
        return cls(
            recipe.strategy.staleness_rule,
            recipe.strategy.masters,
            recipe.ranks.count - recipe.strategy.masters,
            classes,
            recipe.strategy.order,
        )


def opening_line(recipe: Recipe, pushes: int) -> str:
    """What decides an asynchronous run."""
    masters, workers = recipe.strategy.masters, recipe.ranks.count - recipe.strategy.masters
    order = {"free": "free", "round-robin": "in turn"}.get(recipe.strategy.order, f"as in {recipe.strategy.order}")
    bits = "other bits every time" if recipe.strategy.order == "free" else "same bits every time"
    return (
        f"asynchronous: {plural(masters, 'master')}, {plural(workers, 'worker')}, rule "
        f"{recipe.strategy.staleness_rule}; "
        f"{pushes:,} pushes of {recipe.learning.batch_size} samples an epoch, dealt {recipe.strategy.deal}, order "
        f"{order}: {bits}"
    )


@final
class Staleness:
    """Grows by a record an epoch."""

    def __init__(self, deal: AsyncSetting) -> None:
        self._deal = deal
        self._counts = np.zeros(0, np.int64)
        self._updates = self._drops = self._clips = 0
        self._train_s = 0.0
        self._busy_s = np.zeros(deal.masters)
        self._waits_s = np.zeros(deal.masters)
        self._computed_s, self._pushed = np.zeros(deal.workers), np.zeros(deal.workers)

    @classmethod
    def of(cls, summary: dict[str, Any]) -> "Staleness":
        """From the facts of a run that is over, as far as its words need them."""
        names = ("staleness_rule", "masters", "workers", "classes", "order")
        found = cls(AsyncSetting(*(summary[name] for name in names)))
        found._counts = np.array(summary["staleness_counts"], np.int64)
        return found

    def add(self, record: EpochRecord) -> None:
        """One epoch."""
        metrics, masters = record.metrics, self._deal.masters
        counts = np.zeros(max(len(self._counts), len(metrics["staleness_counts"])), np.int64)
        counts[: len(self._counts)] += self._counts
        counts[: len(metrics["staleness_counts"])] += metrics["staleness_counts"]
        self._counts = counts
        self._updates += metrics["updates"]
        self._drops += metrics["drops"]
        self._clips += int(sum(entry["clips"] for entry in record.ranks))
        self._train_s += metrics["epoch_s"]
        self._busy_s += [entry["busy_s"] for entry in record.ranks[:masters]]
        for number in range(masters):
            self._waits_s[number] += sum(entry[f"wait_master_{number}_s"] for entry in record.ranks)
        self._computed_s += [entry["compute_s"] + entry["data_s"] for entry in record.ranks[masters:]]
        self._pushed += [entry["pushes"] for entry in record.ranks[masters:]]

    def facts(self) -> dict[str, Any]:
        """For the summary."""
        pushes = int(self._counts.sum())
        late = np.arange(len(self._counts))
        return {
            "masters": self._deal.masters, "workers": self._deal.workers, "staleness_rule": self._deal.rule,
            "classes": self._deal.classes,
            "pushes": pushes, "updates": self._updates, "drops": self._drops, "clips": self._clips,
            "updates_per_s": self._updates / self._train_s if self._train_s else 0.0,
            "staleness_mean": float(late @ self._counts / pushes) if pushes else 0.0,
            "staleness_max": max(len(self._counts) - 1, 0),
            "staleness_counts": self._counts.tolist(),
            "masters_busy": (self._busy_s / (self._train_s or 1.0)).tolist(),
            "wait_per_push_s": (self._waits_s / max(pushes, 1)).tolist(),
            "workers_busy": float(self._computed_s.mean() / (self._train_s or 1.0)), "slow_worker": self._slow(),
            "order": self._deal.order,
        }  # fmt: skip

    def _slow(self) -> list[float]:
        """[rank, times as long as the others take for a push, in the middle]; empty if none stands out."""
        spent_s = self._computed_s / np.maximum(self._pushed, 1)
        if len(spent_s) < 2 or not self._pushed.all():
            return []
        slowest = int(spent_s.argmax())
        usual_s = float(np.median(np.delete(spent_s, slowest)))
        times = float(spent_s[slowest]) / usual_s if usual_s else 1.0
        return [self._deal.masters + slowest, times] if times > SLOW else []

    def notes(self, summary: dict[str, Any]) -> list[str]:
        """How stale, how busy; and that it collapsed, if it did."""
        pushes, busy = summary["pushes"], summary["masters_busy"]
        within = np.cumsum(self._counts) / max(pushes, 1)
        median = int(np.searchsorted(within, 0.5))
        waits = ", ".join(f"{readable_s(wait)} for master {m}" for m, wait in enumerate(summary["wait_per_push_s"]))
        share = ", ".join(f"{100 * one:.0f} %" for one in busy)
        notes = [
            f"Staleness: {summary['staleness_mean']:.1f} updates on average, {median} or less for half of the pushes, "
            f"at most {summary['staleness_max']}; {summary['drops']} of {pushes:,} pushes dropped, "
            f"{summary['clips']} clipped; {summary['updates_per_s']:,.0f} updates/s.",
            f"Masters were busy {share} of the time; after a push a worker waited {waits}.",
        ]
        accuracy, chance = summary["test_accuracy"], 1.0 / max(1, self._deal.classes)
        if accuracy is not None and accuracy < GUESSING * chance and self._deal.rule != "safe":
            notes.append(
                f"It guesses: with rule {self._deal.rule} the learning rate is too large for gradients that are "
                f"{summary['staleness_mean']:.1f} updates late. Try --staleness-rule safe or softsync."
            )
        return notes

    def lines(self, summary: dict[str, Any]) -> list[str]:
        """For the verdict."""
        return [*self.notes(summary), self.advice(summary)]

    def advice(self, summary: dict[str, Any]) -> str:
        """What limited the run, and the one thing to try next: the first that holds, in the order in which it helps."""
        busy, masters, workers = max(summary["masters_busy"], default=0.0), self._deal.masters, self._deal.workers
        computing, late = summary["workers_busy"], summary["staleness_mean"]
        cores, dropped = summary["machine"]["cores"], summary["drops"] / max(1, summary["pushes"])
        if busy > BUSY:
            return (
                f"Limited by the masters, busy {100 * busy:.0f} % of the time. "
                f"Try --masters {masters + 1} --ranks {masters + 1 + workers}."
            )
        if dropped > DROPPED:
            return (
                f"Limited by lateness: {100 * dropped:.0f} % of the pushes were computed in vain. "
                "Try a larger --max-staleness, or fewer ranks."
            )
        if computing > BUSY and workers < cores:
            return (
                f"Limited by computing, {100 * computing:.0f} % of the workers' time. Try --ranks {masters + cores}: "
                f"sooner, with gradients {plural(cores - 1, 'update')} late instead of {late:.1f}."
            )
        if computing > BUSY:
            return f"Limited by computing, {100 * computing:.0f} % of the workers' time, on all cores."
        rank, times = summary["slow_worker"] or (0, 1.0)
        if times > SLOW * max(1.0, workers / cores):  # on shared cores who computes when makes a difference, too
            return (
                f"Limited by waiting for rank {rank:.0f}, which takes {times:.1f} times as long for a push as the "
                "others. Try --deal dynamic, or --max-staleness none."
            )
        if workers > cores:
            return (
                f"Limited by waiting: {workers} workers share {plural(cores, 'core')}. Try --ranks {masters + cores}, "
                f"with gradients {plural(cores - 1, 'update')} late instead of {late:.1f}."
            )
        if self._deal.order != "free":
            return "Limited by waiting: workers push in turn. Try --order free: sooner, with other bits every time."
        wait_s = readable_s(max(summary["wait_per_push_s"], default=0.0))
        return f"Limited by waiting: a push waits {wait_s} for an answer. Try a larger --batch-size."
