"""A study's words and table on a page: what was found, and below the table why rows of it failed.

    above, below = split_reasons(words_of(rows), rows); [*above, table_of(table(rows), rows), *below]

The one idea: a reason is a sentence. In the last column of a wide table it is cut off where the page is narrow, and
has to be scrolled to; as a paragraph it wraps. In the table such a row is marked beside its name.

Limits: a word is taken for the reason of a row if it ends with it, as the studies' words do.
"""

from collections.abc import Sequence

from unisono.report.html.blocks import Block, Table, Text
from unisono.study.tables import NOT_YET, REASON, Row
from unisono.study.tables import Table as StudyTable


def split_reasons(words: Sequence[str], rows: Sequence[Row]) -> tuple[list[Block], list[Block]]:
    """What was found, and why rows have no numbers."""
    ends = tuple(f": {row[REASON]}" for row in rows if row.get(REASON))
    found: list[Block] = [Text(line) for line in words if not line.endswith(ends)]
    return found, [Text(line, _kind(line)) for line in words if line.endswith(ends)]


def table_of(made: StudyTable, rows: Sequence[Row]) -> Table:
    """Without reasons; a row that has one is marked."""
    columns = [column for column in made.columns if column.name != REASON]
    lines = []
    for row in rows:
        name, *texts = [column.text(row) for column in columns]
        lines.append([f"{name} {_mark(row)}".strip(), *texts])
    return Table([column.title for column in columns], lines)


def _mark(row: Row) -> str:
    if not row.get(REASON):
        return ""
    return f"({NOT_YET})" if row[REASON] == NOT_YET else "(failed)"


def _kind(line: str) -> str:
    return "note" if line.endswith(NOT_YET) else "warning"
