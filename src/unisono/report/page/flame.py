"""A flame graph: what is inside something stands below it, as wide as the time that it takes. Plain data, no HTML.

    Flame("A step", "time of a step", [Frame(0, 0.0, 0.2, 6, "step"), Frame(1, 0.0, 0.1, 0, "forward")])

The one idea: frames have places of their own, in seconds, so that whoever makes them decides what lies in what
(`nesting.py`), and the drawing (`assets/flame.js`) only cuts names that do not fit. A click on a frame makes it as wide
as the chart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class Frame:
    """A bar: its row, where it starts, how long it is, its colour (p0 ... p6 of the style), its name."""

    depth: int
    start_s: float
    length_s: float
    colour: int
    name: str


@final
@dataclass(frozen=True)
class Flame:
    """Frames, a parent before what is inside it. legend: names of colours."""

    title: str
    label: str
    """Of the axis, which is in seconds."""
    frames: Sequence[Frame]
    legend: Sequence[tuple[int, str]] = ()
    note: str = ""

    def spec(self) -> dict[str, Any]:
        """As the charts' code reads it; six digits are more than is to be seen."""
        return {
            "kind": "flame",
            "x": [{"label": self.label, "unit": "s", "log": False}],
            "legend": [[colour, name] for colour, name in self.legend],
            "frames": [
                {
                    "depth": frame.depth,
                    "start": float(f"{frame.start_s:.6g}"),
                    "length": float(f"{frame.length_s:.6g}"),
                    "colour": frame.colour,
                    "name": frame.name,
                }
                for frame in self.frames
            ],
        }
