"""Runs over each other in one chart: the same numbers of each against epochs or time.

    overlay(runs, "Loss", Axis("loss"), {"test": lambda run: run.numbers("test_loss")})

The one idea: one run has a colour for each quantity; of several, a colour is a run's, and quantities are told apart by
dashes. Only what was measured is drawn, thinned if there is too much of it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unisono.report.html.axes import AXES, ends_s, marks_of
from unisono.report.html.blocks import Axis, Lines, Series
from unisono.report.html.downsampling import thin, thinned
from unisono.report.run.load import Run


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
