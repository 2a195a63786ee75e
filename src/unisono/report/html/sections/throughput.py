"""Throughput: samples per second and the time of synchronising, epoch by epoch."""

from collections.abc import Sequence

import numpy as np

from unisono.report.html.blocks import Axis, Section
from unisono.report.html.overlay import overlay
from unisono.report.run.findings import masters_of, plan_of
from unisono.report.run.load import Run


def section(runs: Sequence[Run]) -> Section | None:
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
