"""A profile as a flame graph: a step, its phases, the modules in these, the operators in those. Plain data, no HTML.

    Flame("A step", "time of a step", frames_of(record))        # of rank 0; record: of unisono profile

The one idea: what is inside something stands below it, as wide as the time that it takes. Frames have places of their
own, in seconds, so the code that makes them decides what lies in what (`frames_of`), and the drawing
(`assets/flame.js`) only cuts names that do not fit. A click on a frame makes it as wide as the chart.

Only self times are used, so what is inside something adds up to it. Phases, modules and operators were timed in steps
of their own, for looking closer takes longer: where the inner ones come out longer than the room that they have, they
are drawn to fit; tables have what was measured. Modules of torch lie in each other by their names (blocks.0.conv in
blocks.0), those of the NumPy engine one after the other.

Limits: what takes less than `LEAST` of a step is left out; the gap stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


COLOURS = {"forward": 0, "data": 1, "summing": 2, "waiting": 3, "backward": 4, "optimizer": 5, "other": 6}
"""Of phases, as the style numbers them."""
ORDER = ("data", "forward", "backward", "waiting", "summing", "optimizer", "other")
LEAST = 0.001
MOST_LEVELS = 32
"""Of names of modules; what lies deeper keeps the rest of its name."""


@final
@dataclass
class Node:
    """Something that takes time: itself, and what is inside it."""

    name: str
    self_s: float = 0.0
    inside: dict[str, "Node"] = field(default_factory=dict)

    @property
    def length_s(self) -> float:
        """With all that is inside."""
        return self.self_s + sum(node.length_s for node in self.inside.values())

    def into(self, name: str) -> "Node":
        """What is inside it under that name; there is one from now on."""
        return self.inside.setdefault(name, Node(name))


def frames_of(record: Mapping[str, Any]) -> list[Frame]:
    """Of the first rank that the record has, a mean step."""
    phases, batches = record["phases"][0], record["batches"]
    step_s = phases["step"] / batches
    frames = [Frame(0, 0.0, step_s, COLOURS["other"], "step")]
    start_s = 0.0
    for phase in ORDER:
        length_s = phases[phase] / batches
        if length_s < LEAST * step_s:
            continue
        colour = COLOURS[phase]
        frames.append(Frame(1, start_s, length_s, colour, phase))
        if phase in ("forward", "backward"):
            nodes = modules_of(record, phase)
            frames += _laid([*nodes.values()], Frame(1, start_s, length_s, colour, phase), 1 / batches, step_s)
        start_s += length_s
    return frames


def modules_of(record: Mapping[str, Any], phase: str) -> dict[str, Node]:
    """A tree of what that rank spent in a phase: seconds of all batches."""
    mine = [row for row in record["modules"] if row["rank"] == record["phases"][0]["rank"]]
    nested = record["engine"] == "torch"
    whole = next((row["module"] for row in mine if nested and row["module"] == row["kind"] != "loss"), None)
    operators: dict[str, list[Mapping[str, Any]]] = {}
    for row in record["operators"]:
        if row["rank"] == record["phases"][0]["rank"] and row["phase"] == phase:
            operators.setdefault(row["module"], []).append(row)
    top = Node("")
    for row in mine:
        if row["phase"] == phase:
            node = _place(top, row, whole, nested=nested)
            node.self_s += row["self_s"]
            _put_operators(node, operators.pop(row["module"], []))
    return top.inside


def _place(top: Node, row: Mapping[str, Any], whole: str | None, *, nested: bool) -> Node:
    """The node of a module. nested: names tell what lies in what. whole: the module that all others lie in."""
    name, node = row["module"], top
    if whole is not None and name not in (whole, "loss"):
        node = top.into(whole)
    parts = name.split(".", MOST_LEVELS - 1) if nested else [name]
    for at in range(len(parts)):
        node = node.into(".".join(parts[: at + 1]))
    if row["kind"] != name:
        node.name = f"{name} {row['kind']}"
    return node


def _put_operators(node: Node, rows: Iterable[Mapping[str, Any]]) -> None:
    """Operators take part of the module's own time, all of it at most."""
    rows = [row for row in rows if row["self_s"] > 0]
    sum_s, own_s = sum(row["self_s"] for row in rows), node.self_s
    share = min(1.0, own_s / sum_s) if sum_s else 0.0
    for row in rows:
        inner = node.into(f"operator {row['operator']}")
        inner.name = row["operator"]
        inner.self_s += share * row["self_s"]
    node.self_s = max(0.0, own_s - share * sum_s)


def _laid(nodes: Sequence[Node], within: Frame, scale: float, step_s: float) -> list[Frame]:
    """Frames of the nodes and what is in them, one after the other from where `within` starts."""
    sum_s = sum(node.length_s for node in nodes) * scale
    scale *= min(1.0, within.length_s / sum_s) if sum_s else 1.0
    found, start_s = [], within.start_s
    for node in nodes:
        length_s = node.length_s * scale
        if length_s >= LEAST * step_s:
            frame = Frame(within.depth + 1, start_s, length_s, within.colour, node.name)
            found += [frame, *_laid([*node.inside.values()], frame, scale, step_s)]
        start_s += length_s
    return found
