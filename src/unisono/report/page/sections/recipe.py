"""Recipe: the options of a run, those that differ from their defaults first."""

from collections.abc import Sequence

from unisono.recipe import Recipe
from unisono.report.page.blocks import Block, Fold, Section, Table
from unisono.report.run import Run

_MISSING = object()


def section(runs: Sequence[Run]) -> Section | None:
    """A table a run, folded; what several differ in stands elsewhere."""
    blocks: list[Block] = []
    for run in runs:
        if run.recipe:
            rows = [[str(name), str(value)] for name, value in run.recipe.items()]
            changed = [row for row in rows if getattr(Recipe(), row[0], _MISSING) != run.recipe[row[0]]]
            blocks += [Table(("option", f"value in {run.name}" if len(runs) > 1 else "value"), changed)]
            blocks += [Fold("All options", [Table(("option", "value"), rows)])]
    return Section("Recipe", blocks) if blocks else None
