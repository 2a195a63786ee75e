"""Curves: loss and accuracy against epochs or time, runs over each other; the learning rate where it changes."""

from collections.abc import Sequence

import numpy as np

from unisono.report.html.blocks import Axis, Section
from unisono.report.html.overlay import overlay
from unisono.report.run.load import Run

PARTS = ("test", "validation", "train")


def section(runs: Sequence[Run]) -> Section | None:
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
