"""Differences: the options in which several runs differ, and the machines, if these do."""

from collections.abc import Sequence
from typing import Any

from unisono.report.html.blocks import Section, Table, Text
from unisono.report.run.load import Run


def section(runs: Sequence[Run]) -> Section | None:
    """A column a run."""
    trained = [run for run in runs if run.trained]
    if len(trained) < 2:
        return None
    rows = differing([run.recipe for run in trained]) + differing([facts_of(run) for run in trained])
    if not rows:
        return Section("What differs", [Text("Nothing: the recipes and the machines are the same.")])
    return Section("What differs", [Table(("option", *(run.name for run in trained)), rows)])


def facts_of(run: Run) -> dict[str, Any]:
    """The machine, and the version of unisono; of a run or a study."""
    told = run.summary or run.about
    machine = told.get("machine")
    found = {f"machine: {name}": value for name, value in machine.items()} if isinstance(machine, dict) else {}
    return found | ({"unisono": told["version"]} if "version" in told else {})


def differing(tables: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows whose values are not all equal: the name, and the value in each table."""
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [[name, *("-" if name not in table else str(table[name]) for table in tables)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]
