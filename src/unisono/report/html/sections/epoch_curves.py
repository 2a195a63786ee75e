"""Curves over epochs or time, runs over each other: loss, accuracy, learning rate; samples per second, synchronising.

    overlay(runs, "Loss", Axis("loss"), {"test": lambda run: run.numbers("test_loss")})

The one idea: for one run, each quantity has a colour; for several, each run has one, and quantities are told apart by
dashes. Only what was measured is drawn, thinned if there is too much of it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unisono.report.html.blocks import Axis, Lines, Section, Series
from unisono.report.html.downsampling import thin, thinned
from unisono.report.html.run_timeline import AXES, ends_s, marks_of
from unisono.report.run.findings import masters_of, plan_of
from unisono.report.run.load import Run

PARTS = ("test", "validation", "train")


def overlay(
    runs: Sequence[Run],
    title: str,
    y: Axis,
    quantities: Mapping[str, Callable[[Run], np.ndarray]],
    dashed: str = "",
) -> Lines | None:
    """None if no run has any. quantities: a value an epoch; dashed: which of them is."""
    series, shown, points = [], 0, 0
    for number, run in enumerate(runs):
        for order, (name, of) in enumerate(quantities.items()):
            values = of(run)
            measured = np.flatnonzero(np.isfinite(values))
            if not len(measured):
                continue
            kept = measured[thin(values[measured])]
            shown, points = max(shown, len(kept)), max(points, len(measured))
            several = len(runs) > 1
            told = name if not several else f"{run.name}: {name}" if len(quantities) > 1 else run.name
            xs = [run.numbers("epoch")[kept], ends_s(run)[kept]]
            series.append(Series(told, xs, values[kept], number if several else order, dashed=name == dashed))
    if not series:
        return None
    marks = marks_of(runs[0]) if len(runs) == 1 else []  # whose they are could not be seen otherwise
    return Lines(title, AXES, y, series, marks, thinned(shown, points))


def curves(runs: Sequence[Run]) -> Section | None:
    """At most three charts."""
    trained = [run for run in runs if run.trained]
    losses = {part: lambda run, part=part: run.numbers(f"{part}_loss") for part in PARTS}
    accuracies = {part: lambda run, part=part: 100 * run.numbers(f"{part}_accuracy") for part in PARTS}
    charts = [
        overlay(trained, "Loss", Axis("loss"), losses, dashed="train"),
        overlay(trained, "Accuracy", Axis("accuracy", "%"), accuracies, dashed="train"),
    ]
    if any(len(np.unique(run.numbers("lr"))) > 1 for run in trained):
        rates = {"learning rate": lambda run: run.numbers("lr")}
        charts.append(overlay(trained, "Learning rate", Axis("learning rate"), rates))
    found = [chart for chart in charts if chart is not None]
    return Section("Loss and accuracy", found) if found else None


def throughput(runs: Sequence[Run]) -> Section | None:
    """Two charts, runs over each other."""
    trained = [run for run in runs if run.trained]
    speeds = {"samples/s": lambda run: run.numbers("samples_per_s")}
    syncs = {"waiting": lambda run: _a_step(run, "wait_s"), "updating": lambda run: _a_step(run, "update_s")}
    charts = [
        overlay(trained, "Throughput", Axis("samples per second"), speeds),
        overlay(trained, "Synchronising, mean over the ranks", Axis("time a step", "s"), syncs, dashed="updating"),
    ]
    found = [chart for chart in charts if chart is not None]
    return Section("Throughput and synchronising", found) if found else None


def _a_step(run: Run, name: str) -> np.ndarray:
    """Seconds, the mean over the ranks and the steps of each epoch; an asynchronous run has none."""
    plan, seconds = plan_of(run), run.by_rank(name)
    if plan is None or not run.size or masters_of(run):
        return np.full(len(seconds), np.nan)
    found: np.ndarray = np.nanmean(seconds, axis=1) / plan.steps_per_epoch
    return found
