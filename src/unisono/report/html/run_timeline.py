"""Where epochs and events lie on the two axes of a run: epochs, and seconds since the first one began.

    epoch_s(run); marks_of(run); AXES

The one idea: the rounds of a run are numbered, so an event has an exact place among the steps, whatever the clocks of
several starts said; its time is that of its place between two epochs. The point of an epoch is its end, so the first
epoch lies between 0 and 1. Evaluation is part of the time.

Limits: time between two starts of a run that was resumed is not counted. An event without a round (a replacement that
never joined) has no place and stands in the table of events only.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from unisono.messages.events import RankDied, RankJoined, SnapshotFailed, SnapshotWritten, read_event
from unisono.report.html.blocks import Axis, Mark
from unisono.report.run.findings import plan_of
from unisono.report.run.load import Run
from unisono.report.terminal.training import event_line
from unisono.training.round_schedule import RoundSchedule

AXES = [Axis("epoch", counted=True), Axis("time since the first epoch began", "s")]
LOST, STALLED, BACK, UNSAVED = "rank lost", "rank stalled", "rank back", "snapshot failed"
SIGNS = {LOST: "lost", STALLED: "stalled", BACK: "back", UNSAVED: "unsaved"}
MOST_MARKS = 500
"""In a chart: the first ones."""


def epoch_s(run: Run) -> np.ndarray:
    """How long each epoch took, evaluation included; at least what its training took."""
    trained = np.nan_to_num(run.numbers("epoch_s"))
    longest: np.ndarray = np.maximum(np.nan_to_num(run.numbers("total_s")), trained)
    return longest


def ends_s(run: Run) -> np.ndarray:
    """When each epoch ended."""
    ends: np.ndarray = np.cumsum(epoch_s(run))
    return ends


def marks_of(run: Run) -> list[Mark]:
    """Take-overs, stalls, returns and snapshots that failed, on both axes."""
    place = places_of(run)
    found = ((kind_of(event), place(event), event) for event in run.events)
    marks = (Mark(at, event_text(event), kind, SIGNS[kind]) for kind, at, event in found if kind and at is not None)
    return list(islice(marks, MOST_MARKS))


def kind_of(event: dict[str, Any]) -> str:
    """Of a mark; empty for events that need none."""
    match read_event(event):
        case RankDied(stalled=True):
            return STALLED
        case RankDied():
            return LOST
        case SnapshotFailed():
            return UNSAVED
        case RankJoined():
            return BACK
    return ""


def places_of(run: Run) -> Callable[[dict[str, Any]], tuple[float, float] | None]:
    """A function that gives (epoch, seconds) of an event; None if it has no place."""
    plan, epochs = plan_of(run), run.numbers("epoch")
    if plan is None or not len(epochs):
        return lambda event: None
    walk, ends = RoundSchedule(plan.steps_per_epoch, len(epochs)), [0.0, *ends_s(run)]
    known = [max(0.0, epochs[0] - 1), *epochs]

    def place(event: dict[str, Any]) -> tuple[float, float] | None:
        position = event.get("position")
        if type(position) is not int or not 0 < position < 2**53:
            return None
        epoch, step = walk.where(position)
        at = min(epoch - 1 + step / (walk.steps + 1), epochs[-1])
        return float(at), float(np.interp(at, known, ends))

    return place


def event_text(event: dict[str, Any]) -> str:
    """An event in words, whatever it is."""
    known = read_event(event)
    if known is not None and (line := event_line(known)):
        return line
    return "snapshot written" if isinstance(known, SnapshotWritten) else str(event.get("kind", "event"))
