"""What a run of a study left beside its summary: its score after every epoch, and how many cores it kept busy.

    outcome_of(Path("studies/mine/runs/a-0"))["accuracies"]

The one idea: what tables need of a run is in its record, so that a study can be shown when its runs are gone. Files
that are missing or damaged say nothing, and nothing is made up.

Limits: utilisation is sampled every two seconds, and that of the node which wrote the run directory.
"""

import csv
import io
from pathlib import Path
from typing import Any

from unisono.files import open_file, read_file
from unisono.parsing import MOST_JSON_BYTES, parse_json

PARTS = ("test", "validation", "train")
"""Whose accuracy it is: the first of these that the run measured."""


def outcome_of(run: Path) -> dict[str, Any]:
    """accuracies (one an epoch) and scored (of which part), if there are any; node_cores: in use by the
    ranks, on average."""
    found: dict[str, Any] = {}
    epochs = _epochs(run / "metrics.jsonl")
    for part in PARTS:
        values = [epoch.get(f"{part}_accuracy") for epoch in epochs]
        if values and all(isinstance(value, float | int) for value in values):
            found |= {"accuracies": values, "scored": part}
            break
    if busy := _node_cores(run / "utilisation.csv"):
        found["node_cores"] = sum(busy) / len(busy)
    return found


def _epochs(path: Path) -> list[dict[str, Any]]:
    try:
        found = [parse_json(line) for line in read_file(path, MOST_JSON_BYTES, follow_links=False).splitlines()]
    except (OSError, ValueError):
        return []
    return found if all(isinstance(epoch, dict) for epoch in found) else []


def _node_cores(path: Path) -> list[float]:
    """What the ranks used in each sample."""
    try:
        with io.TextIOWrapper(open_file(path, follow_links=False), "utf-8", newline="") as file:
            return [float(line["utilisation"]) for line in csv.DictReader(file) if line.get("what") == "all ranks"]
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return []
