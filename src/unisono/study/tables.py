r"""Tables of studies: one definition, shown on a terminal and written as CSV, JSON, Markdown and LaTeX.

>>> table = Table("Times", [Column("ranks", "ranks"), Column("train_s", "time", lambda s: f"{s:.2f} s")])
>>> print(table.markdown([{"ranks": 2, "train_s": 1.5}]))
| ranks | time |
| ---: | ---: |
| 2 | 1.50 s |

The one idea: a row is a dict of plain values. CSV and JSON have the values, for programs; the others have texts, for
people. What a row lacks is an empty text, and a row with a reason has that instead of its numbers.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

from rich.box import SIMPLE_HEAD
from rich.table import Table as Shown

from unisono.files import write_file

Row: TypeAlias = Mapping[str, Any]
REASON = "reason"
"""Why a row has no numbers."""
NOT_YET = "not run yet"
"""The reason that is no failure."""
FAILED = "failed"
"""How many of a row's runs failed. The others are no sample of all, and have no range."""
_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}  # fmt: skip


@final
@dataclass(frozen=True)
class Column:
    """name: of the value in a row, with its unit. title: above the column. show: the value as a text."""

    name: str
    title: str
    show: Callable[[Any], str] = str
    left: bool = False
    """Texts stand on the left, numbers on the right."""
    minor: bool = False
    """Left out on a terminal that has no room for it."""
    ranged: int | None = None
    """Decimals of a value that is shown with its range, which the row has as NAME_low and NAME_high."""

    def text(self, row: Row) -> str:
        """Empty if there is no value."""
        value = row.get(self.name)
        if value is None:
            return ""
        if self.ranged is not None and row.get(FAILED):
            return f"{value:,.{self.ranged}f}"
        if self.ranged is not None:
            return range_of(value, row[f"{self.name}_low"], row[f"{self.name}_high"], self.ranged)
        return self.show(value)


@final
@dataclass(frozen=True)
class Table:
    """Columns for rows that come later."""

    title: str
    columns: Sequence[Column]

    def texts(self, row: Row) -> list[str]:
        """A row's cells."""
        return [column.text(row) for column in self.columns]

    def shown(self, rows: Sequence[Row], width: int = 80) -> Shown:
        """For a terminal; what failed is marked. A reason is a sentence, for which there is no room: say it below."""
        made = Shown(title=self.title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        columns = self._fitting(rows, width)
        for column in columns:
            made.add_column(column.title, justify="left" if column.left else "right", overflow="fold")
        for row in rows:
            texts = [column.text(row) for column in columns]
            failed = bool(row.get(REASON))
            told, style = ("not yet", None) if row.get(REASON) == NOT_YET else ("failed", "red")
            made.add_row(*texts[:-1], told if failed else texts[-1], style=style if failed else None)
        left_out = [column.title for column in self.columns if column.name != REASON and column not in columns]
        if left_out:
            made.caption = f"in the files, no room here: {', '.join(left_out)}"
        return made

    def _fitting(self, rows: Sequence[Row], width: int) -> list[Column]:
        """Without reasons, and without minor columns as long as there is no room for them."""
        columns = [column for column in self.columns if column.name != REASON]
        wide = {
            column.name: max([len(column.title), *(len(column.text(row)) for row in rows)]) + 2 for column in columns
        }
        minor = [column for column in columns if column.minor]
        while minor and sum(wide[column.name] for column in columns) + 1 > width:
            columns.remove(minor.pop())
        return columns

    def markdown(self, rows: Sequence[Row]) -> str:
        """As GitHub reads it."""
        lines = [[column.title for column in self.columns], [":---" if c.left else "---:" for c in self.columns]]
        lines += [[text.replace("\\", "\\\\").replace("|", "\\|") for text in self.texts(row)] for row in rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def latex(self, rows: Sequence[Row]) -> str:
        """A tabular with booktabs' rules (\\usepackage{booktabs})."""
        lines = [" & ".join(map(escaped, cells)) + r" \\" for cells in map(self.texts, rows)]
        head = " & ".join(escaped(column.title) for column in self.columns) + r" \\"
        form = "".join("l" if column.left else "r" for column in self.columns)
        return "\n".join(
            [rf"\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]
        )

    def csv(self, rows: Sequence[Row]) -> str:
        """The values; also those that are in no column, as far as they are plain."""
        names = list(dict.fromkeys([c.name for c in self.columns] + [name for row in rows for name in row]))
        names = [name for name in names if not any(isinstance(row.get(name), list | dict) for row in rows)]
        text = io.StringIO()
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows([{name: harmless(value) for name, value in row.items()} for row in rows])
        return text.getvalue()

    def write(self, rows: Sequence[Row], folder: Path, stem: str) -> list[Path]:
        """STEM.csv, .json, .md and .tex in `folder`; those of before are replaced."""
        texts = {
            "csv": self.csv(rows),
            "json": json.dumps(list(rows), indent=1) + "\n",
            "md": f"{self.markdown(rows)}\n",
            "tex": f"{self.latex(rows)}\n",
        }
        for ending, text in texts.items():
            write_file(folder / f"{stem}.{ending}", text)
        return [folder / f"{stem}.{ending}" for ending in texts]


def harmless(value: Any) -> Any:
    """For CSV: a text that a spreadsheet would take for a formula gets a quote before it; numbers stay."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def escaped(text: str) -> str:
    """For LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def range_of(value: float, low: float, high: float, decimals: int = 2) -> str:
    """1.5, 1.48, 1.61 -> '1.50 ±4%': half the range, as a share of the value."""
    told = f"{value:,.{decimals}f}"
    return told if low == high or not value else f"{told} ±{100 * (high - low) / 2 / abs(value):.0f}%"
