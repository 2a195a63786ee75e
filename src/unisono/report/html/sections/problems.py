"""Problems: what is missing or damaged, so that nobody takes the rest for the whole."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from unisono.report.html.blocks import Section, Text
from unisono.report.run.load import STUDIES, Run


def section(runs: Sequence[Run]) -> Section | None:
    """Nothing, mostly."""
    told = [
        f"{run.name}: {problem}" if len(runs) > 1 else problem
        for run in runs
        for problem in (*run.problems, *_unlike(run))
    ]
    return Section("What could not be read", [Text(line, "warning") for line in told]) if told else None


def _unlike(run: Run) -> list[str]:
    """Studies whose records are not such as their command writes; sections leave these out."""
    told = []
    for name in STUDIES:
        records = run.studies.get(name, [])
        module: Any = import_module(f"unisono.report.html.sections.{name}")
        if lost := sum(not module.usable(record) for record in records):
            told.append(
                f"{name}.json: {lost} of {len(records)} records are not such as unisono {name} writes, and left out"
            )
    return told
