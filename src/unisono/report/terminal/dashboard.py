"""The dashboard: a run on a terminal, as it is now: score, progress, curves in a line each, what the ranks did.

    Console().print(dashboard(unisono.load("runs/mine")))

The one idea: the same records as the page, in what fits a screen of 80 columns. Texts of a run are shown by `plain`:
they cannot write to the terminal.

Limits: curves are eight steps high; the page shows the rest.
"""

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from unisono.report.html.downsampling import quiet, stretches
from unisono.report.html.markup import plain
from unisono.report.html.number_text import counted, number_of, percent_of, score_of, seconds_of, status_of
from unisono.report.html.sections.events import Line, lines_of
from unisono.report.html.sections.rank_work import PARTS, times_of
from unisono.report.run.findings import findings_of, hosts_of, last_size
from unisono.report.run.load import Run
from unisono.safe_print import printable
from unisono.user_code.tracebacks import ending

STEPS = "▁▂▃▄▅▆▇█"
CURVES = {
    "train_loss": "train loss", "validation_accuracy": "validation accuracy", "test_loss": "test loss",
    "test_accuracy": "test accuracy", "samples_per_s": "samples/s",
}  # fmt: skip
WIDTH, BAR = 44, 24
MOST_RANKS, MOST_EVENTS = 16, 4
LETTERS = {"compute_s": ("█", "blue"), "data_s": ("▓", "green"), "update_s": ("▒", "yellow"), "wait_s": ("░", "white")}
"""A letter of its own for each kind of time: there may be no colours."""


def dashboard(run: Run, age_s: float | None = None) -> RenderableType:
    """age_s: since something was written."""
    with quiet():
        return _dashboard(run, age_s)


def _dashboard(run: Run, age_s: float | None) -> RenderableType:
    parts: list[RenderableType] = [Text(_title(run, age_s), style="bold"), _progress(run), _curves(run)]
    if run.size and len(run.numbers("epoch")):
        parts.append(_ranks(run))
    parts += [Text(plain(_told(line)), style="yellow") for line in lines_of(run, MOST_EVENTS, latest=True)]
    parts += [Text(plain(line)) for line in findings_of(run)]
    if error := run.summary.get("error"):
        parts.append(Text(plain(ending(str(error).rstrip())), style="red"))
    parts += [Text(plain(problem), style="red") for problem in run.problems]
    return Group(*parts)


def _title(run: Run, age_s: float | None) -> str:
    found = run.recipe | run.summary
    what = f"{found.get('model', '?')} on {found.get('data', '?')}, {counted(found.get('ranks', run.size), 'rank')}"
    age = "" if age_s is None or run.summary else f", last written {_ago(age_s)}"
    return printable(plain(f"{run.name}: {what}; {status_of(run)}{age}"))


def _ago(age_s: float) -> str:
    """In whole seconds: it is looked at once a second."""
    whole = round(age_s)
    return "now" if whole < 1 else f"{whole} s ago" if whole < 600 else f"{seconds_of(whole)} ago"


def _told(line: Line) -> str:
    """What happened, and when."""
    return f"{line.when}: {line.what}" if line.when else line.what


def _progress(run: Run) -> RenderableType:
    done, wanted = len(run.numbers("epoch")), run.recipe.get("epochs")
    most = wanted if isinstance(wanted, int) and 0 < wanted < 2**53 else max(1, done)
    part, accuracy, loss = score_of(run)
    line = Table.grid(padding=(0, 2, 0, 0))
    scores = f"{part} loss {number_of(loss)}" if loss is not None else ""
    if accuracy is not None:
        scores = f"{part} accuracy {percent_of(accuracy)}  {scores}"
    bar = ProgressBar(total=float(most), completed=float(min(done, most)), width=20)
    line.add_row(Text(f"epoch {done:,}/{most:,}"), bar, Text(scores))
    return line


def _curves(run: Run) -> RenderableType:
    """A line for each column of metrics that has numbers: from where to where, and its shape."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, title in CURVES.items():
        values = run.numbers(name)
        values = values[np.isfinite(values)]
        if len(values):
            first, last = (number_of(float(values[at])) for at in (0, -1))
            table.add_row(title, Text(spark(values), style="cyan"), Text(f"{first} -> {last}"))
    return table


def spark(values: np.ndarray, width: int = WIDTH) -> str:
    """A curve in one line of at most `width` letters; each stands for the mean of its stretch."""
    means = np.array([values[piece].mean() for piece in stretches(len(values), width)])
    low, high = means.min(), means.max()
    heights = np.zeros(len(means)) if high == low else np.nan_to_num((means - low) / (high - low))
    return "".join(STEPS[round(float(height) * (len(STEPS) - 1))] for height in heights)


def _ranks(run: Run) -> RenderableType:
    """What each rank did in the last epoch."""
    table = Table.grid(padding=(0, 2, 0, 0))
    times, hosts, size = np.nan_to_num(times_of(run)[-1]), hosts_of(run), last_size(run)
    legend = Text("the last epoch: ").append_text(
        Text(" ").join(Text(LETTERS[name][0], LETTERS[name][1]) + Text(f" {title}") for name, title in PARTS.items())
    )
    for rank in range(min(size, MOST_RANKS)):
        total = times[rank].sum()
        table.add_row(f"rank {rank}", Text(plain(hosts[rank], 16)), bar_of(times[rank]), seconds_of(float(total)))
    left = size - MOST_RANKS
    return Group(legend, table, *([Text(f"and {left} more ranks")] if left > 0 else []))


def bar_of(lengths: Sequence[float] | np.ndarray, width: int = BAR) -> Text:
    """Parts of a whole as letters; what is rounded away is given to the largest."""
    total = float(np.sum(lengths))
    if not 0 < total < np.inf:
        return Text()
    counts = [int(width * (float(value) / total)) for value in lengths]
    counts[int(np.argmax(lengths))] += width - sum(counts)
    bar = Text()
    for count, (letter, colour) in zip(counts, LETTERS.values(), strict=True):
        bar.append(letter * count, colour)
    return bar
