"""A profile as a trace that chrome://tracing and ui.perfetto.dev show: a row of bars for each rank, on one clock.

The one idea: ranks of a node read the same clock, so where one waits one sees for whom.

    write_trace([[["wait", 12.0, 12.5]]], Path("trace.json"))

Limits: all steps that were watched are in it, operators are not.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unisono.files import write_file

COLOURS = {
    "data": "yellow",
    "forward": "good",
    "backward": "thread_state_runnable",
    "wait": "terrible",
    "sum": "bad",
    "exchange": "bad",
    "update": "olive",
}
"""Names that Chrome's viewer knows; Perfetto chooses its own."""


def events_of(spans: Sequence[Sequence[Sequence[Any]]]) -> list[dict[str, Any]]:
    """Of each rank's (name, begun, ended), in seconds; a name is "forward" or, of a module, "forward/0/Linear"."""
    start = min((begun for rank in spans for _, begun, _ in rank), default=0.0)
    found: list[dict[str, Any]] = []
    for number, rank in enumerate(spans):
        found.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": f"rank {number}"}})
        found.append({"name": "process_sort_index", "ph": "M", "pid": number, "args": {"sort_index": number}})
        step = 0
        for name, begun, ended in sorted(rank, key=lambda span: (span[1], -span[2])):
            phase, *module = name.split("/")
            step += name == "step"
            shown = f"step {step}" if name == "step" else " ".join(module) or phase
            bar = {"name": shown, "cat": phase, "ph": "X", "pid": number, "tid": 0}
            bar |= {"ts": round(1e6 * (begun - start), 3), "dur": round(1e6 * (ended - begun), 3)}
            found.append(bar | ({"cname": COLOURS[phase]} if phase in COLOURS and not module else {}))
    return found


def write_trace(spans: Sequence[Sequence[Sequence[Any]]], path: Path) -> None:
    """The file that the viewers open."""
    write_file(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": events_of(spans)}))
