"""What a page is made of: sections of blocks, blocks of text, tables and charts. Plain data, no HTML.

    Section("Curves", [Lines("Loss", [Axis("epoch")], Axis("loss"), [Series("train", [[1, 2]], [0.5, 0.25])])])

The one idea: a section says what is to be seen and knows nothing of how; `markup.py` makes HTML of it, `assets/` draws
the charts. Texts are as they come, from wherever: escaping is markup's affair alone.

A chart may have several x axes (epoch, time) of which the reader chooses one; series and marks have a place on each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias, final

import numpy as np

from unisono.report.html.flame import Flame

Numbers: TypeAlias = Sequence[float] | np.ndarray


@final
@dataclass(frozen=True)
class Axis:
    """A label and a unit: s and B are shown readably (81.5 ms, 4 MiB), others as they are."""

    label: str
    unit: str = ""
    log: bool = False
    counted: bool = False
    """Things that come whole, such as ranks: there is no tick at 1.5."""


@final
@dataclass(frozen=True)
class Series:
    """A line: its places on each x axis and its values, all finite."""

    name: str
    xs: Sequence[Numbers]
    y: Numbers
    colour: int = 0
    dashed: bool = False


@final
@dataclass(frozen=True)
class Mark:
    """Something that happened, at a place on each x axis."""

    at: Sequence[float]
    label: str
    kind: str
    """What marks of this kind are called in the legend."""
    sign: str = "lost"
    """Its shape and colour: lost, stalled, back or unsaved."""


@final
@dataclass(frozen=True)
class Lines:
    """Curves against one of several x axes."""

    title: str
    x: Sequence[Axis]
    y: Axis
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    note: str = ""

    def spec(self) -> dict[str, Any]:
        """As the charts' code reads it."""
        return {
            "kind": "lines",
            "x": [_axis(axis) for axis in self.x],
            "y": _axis(self.y),
            "series": [
                {
                    "name": s.name,
                    "xs": [_list(x) for x in s.xs],
                    "y": _list(s.y),
                    "colour": s.colour,
                    "dashed": s.dashed,
                }
                for s in self.series
            ],
            "marks": [_mark(mark) for mark in self.marks],
        }


@final
@dataclass(frozen=True)
class Rows:
    """Bars in rows along an axis, mostly of time: each row has cells, and a cell is cut into the same parts.

    cells: (row, cell, 1 + parts): where a cell starts and how long each part is. labels: of the cells.
    colours: p0 ... p6 of the style, one a part; in their order if not given.
    """

    title: str
    x: Axis
    rows: Sequence[str]
    labels: Sequence[str]
    parts: Sequence[str]
    cells: np.ndarray
    marks: Sequence[Mark] = ()
    note: str = ""
    colours: Sequence[int] = ()

    def spec(self) -> dict[str, Any]:
        """As the charts' code reads it."""
        return {
            "kind": "rows", "x": [_axis(self.x)], "rows": list(self.rows), "labels": list(self.labels),
            "parts": list(self.parts), "cells": [[_list(cell) for cell in row] for row in self.cells],
            "marks": [_mark(mark) for mark in self.marks], "colours": list(self.colours or range(len(self.parts))),
        }  # fmt: skip


@final
@dataclass(frozen=True)
class Heat:
    """A colour for each (row, column): how far a value is from what was expected, up to `reach`; beyond, it stays.

    low and high: the extremes where a cell stands for several values.
    """

    title: str
    x: Axis
    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray
    expected: np.ndarray
    reach: float
    unit: str = ""
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    note: str = ""

    def spec(self) -> dict[str, Any]:
        """As the charts' code reads it."""
        found = {
            "kind": "heat", "x": [_axis(self.x)], "rows": list(self.rows), "columns": list(self.columns),
            "unit": self.unit, "reach": _number(self.reach), "values": [_list(row) for row in self.values],
            "expected": [_list(row) for row in self.expected],
        }  # fmt: skip
        if self.low is not None and self.high is not None:
            found |= {"low": [_list(row) for row in self.low], "high": [_list(row) for row in self.high]}
        return found


Chart: TypeAlias = Lines | Rows | Heat | Flame


@final
@dataclass(frozen=True)
class Text:
    """A paragraph. kind: lead (large), advice (what to do), warning, state (how it goes), note (small)."""

    text: str
    kind: str = ""


@final
@dataclass(frozen=True)
class Code:
    """Text to be read or copied as it is."""

    text: str


@final
@dataclass(frozen=True)
class Tiles:
    """Numbers that are seen first: (what, value, small print)."""

    tiles: Sequence[tuple[str, str, str]]


@final
@dataclass(frozen=True)
class Table:
    """Rows of text; columns whose cells are all numbers are aligned to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@final
@dataclass(frozen=True)
class Fold:
    """Blocks behind a line that opens them."""

    title: str
    blocks: Sequence["Block"]


Block: TypeAlias = Chart | Text | Code | Tiles | Table | Fold


@final
@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]


def _axis(axis: Axis) -> dict[str, Any]:
    return {"label": axis.label, "unit": axis.unit, "log": axis.log, "counted": axis.counted}


def _mark(mark: Mark) -> dict[str, Any]:
    return {"at": _list(mark.at), "label": mark.label, "kind": mark.kind, "sign": mark.sign}


def _list(values: Numbers) -> list[float | None]:
    return [_number(value) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]


def _number(value: float) -> float | None:
    """Whole numbers (epochs, bytes) exactly; of others six digits: more are not to be seen, and cost room."""
    if not isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else float(f"{value:.6g}")
