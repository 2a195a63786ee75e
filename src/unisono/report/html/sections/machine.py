"""Machine: what the run ran on, and with which versions."""

from collections.abc import Sequence

from unisono.report.html.blocks import Section, Table
from unisono.report.html.number_text import bytes_of
from unisono.report.html.sections.differences import facts_of
from unisono.report.run.load import Run


def section(runs: Sequence[Run]) -> Section | None:
    """A column a run."""
    tables = [(run.name, facts_of(run)) for run in runs if facts_of(run)]
    if not tables:
        return None
    names = dict.fromkeys(name for _, facts in tables for name in facts)
    rows = [
        [name.removeprefix("machine: "), *(_text(name, facts.get(name, "")) for _, facts in tables)] for name in names
    ]
    head = [name for name, _ in tables] if len(tables) > 1 else [""]
    return Section("Machine", [Table(("", *head), rows)])


def _text(name: str, value: object) -> str:
    return bytes_of(value) or str(value) if name.endswith("_bytes") else str(value)
