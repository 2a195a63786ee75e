"""Runs of a calibration that somebody has damaged."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from unisono.errors import UserError
from unisono.measure.prediction import points
from unisono.measure.prediction.points import point_of
from unisono.recipe import Recipe
from unisono.study.cells import Cell

WHOLE = {"epochs": 2, "steps": 26, "samples": 624}


@pytest.mark.parametrize(
    ("summary", "times", "told"),
    [
        ({"steps": 26, "samples": 624}, [1.5, 1.25], "epochs in its summary is no number"),
        (WHOLE | {"steps": None}, [1.5, 1.25], "steps in its summary is no number"),
        (WHOLE | {"epochs": 0}, [1.5, 1.25], "epochs in its summary is no number"),
        (WHOLE, [], "no epochs"),
    ],
)
def test_a_run_that_lacks_what_a_prediction_needs_is_named(summary, times, told, monkeypatch):
    run = SimpleNamespace(summary=summary, numbers=lambda name: np.array(times), by_rank=lambda name: np.ones((2, 3)))
    monkeypatch.setattr(points, "load", lambda path: run)
    with pytest.raises(UserError, match=f"the run runs/a is damaged: {told}\nHINT: remove its line from cells.jsonl"):
        point_of(Cell({}, Recipe()), [Path("runs/a")], 13)
