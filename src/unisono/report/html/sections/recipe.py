"""Recipe: the options of a run, or of all runs of a study, those that differ from their defaults first."""

from collections.abc import Sequence
from typing import Any

from unisono.recipe import OPTIONS, flag
from unisono.report.html.blocks import Block, Fold, Section, Table, Text
from unisono.report.run.load import Run


def section(runs: Sequence[Run]) -> Section | None:
    """A table a run, folded; what several differ in stands elsewhere."""
    blocks: list[Block] = []
    for run in runs:
        if recipe := recipe_of(run):
            rows = [[str(name), str(value)] for name, value in recipe.items()]
            changed = [row for row in rows if row[0] not in OPTIONS or OPTIONS[row[0]].default != recipe[row[0]]]
            blocks += [Text(told, "note") for told in _varied(run)]
            head = ("option", f"value in {run.name}" if len(runs) > 1 else "value")
            whose = f"{run.name}: a" if len(runs) > 1 else "A"
            blocks.append(Table(head, changed) if changed else Text(f"{whose}ll options have their defaults.", "note"))
            blocks += [Fold("All options", [Table(("option", "value"), rows)])]
    return Section("Recipe", blocks) if blocks else None


def recipe_of(run: Run) -> dict[str, Any]:
    """The options; of a study those on which its runs agree."""
    common = run.about.get("recipe")
    return run.recipe or (common if isinstance(common, dict) else {})


def _varied(run: Run) -> list[str]:
    """In what the runs of a study differ."""
    names = run.about.get("varied")
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        return []
    return [f"What all runs of the study have in common. They differ in {', '.join(map(flag, names))}."]
