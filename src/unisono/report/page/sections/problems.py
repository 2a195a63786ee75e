"""Problems: what of a run directory is missing or damaged. The rest of the page shows what is left."""

from collections.abc import Sequence

from unisono.report.page.blocks import Section, Text
from unisono.report.run import Run


def section(runs: Sequence[Run]) -> Section | None:
    """A line for each."""
    whose = len(runs) > 1
    lines = [f"{run.name}: {told}" if whose else told for run in runs for told in run.problems]
    return Section("What could not be read", [Text(line, "warning") for line in lines]) if lines else None
