"""Instrument: what `rank.py` knows of how an engine is looked into: a model to train with, and parts to switch on.

The one idea: looking costs time, so each part is switched on for some steps of its own, between steps that nobody
watches; the difference is the price, and it is told.

    with instrument.watching("modules"): strategy.step(batch); instrument.begin("modules"); strategy.step(batch)
    instrument.modules(); instrument.spans("modules")
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from statistics import median
from typing import Any

from unisono.measure.profile.spans import Cost, Key, Span
from unisono.models.base import Model

Row = dict[str, Any]


class Instrument(ABC):
    """Looks into the model of one rank."""

    model: Model
    """To train with; the numbers it computes are those of the model that is looked into, to the last bit."""

    light: tuple[str, ...]
    """What can be watched for a few steps at a time: phases, and modules where that costs little."""

    heavy: str
    """What is watched in one go: operators."""

    @abstractmethod
    def watching(self, part: str) -> AbstractContextManager[None]:
        """Steps inside are watched; one `part` at a time, `heavy` once; "": none."""

    @abstractmethod
    def begin(self, part: str) -> None:
        """Forgets what was seen of a part so far, while it is watched: a first call makes what later ones use."""

    def take_off(self, longer_s: float) -> None:  # noqa: B027  (where that is not known)
        """Watching modules took so much longer than watching phases, in all steps: that is no module's time."""

    @abstractmethod
    def spans(self, part: str) -> list[Span]:
        """Of forward and backward as wholes, and of modules; those of one call before those of the next."""

    @abstractmethod
    def modules(self) -> list[Row]:
        """A row per module and phase, forward or backward."""

    @abstractmethod
    def operators(self) -> list[Row]:
        """A row per operator, module and phase, and per shape of its inputs if that was asked for."""


def row_of(key: Key, cost: Cost, **more: Any) -> Row:
    """key: (phase, module, kind)."""
    return {"phase": key[0], "module": key[1], "kind": key[2], **more, **cost_row(cost)}


def cost_row(cost: Cost) -> Row:
    """The columns that every table has."""
    return {
        "self_s": cost.self_s,
        "total_s": cost.total_s,
        "average_s": cost.total_s / cost.calls if cost.calls else 0.0,
        "median_s": median(cost.each_s) if cost.each_s else None,
        "memory_bytes": cost.memory_bytes,
        "self_memory_bytes": cost.self_memory_bytes,
        "calls": cost.calls,
    }
