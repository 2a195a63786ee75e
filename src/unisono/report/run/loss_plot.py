"""loss.png: the losses of a run against the epoch. Reads metrics.jsonl and nothing else; damaged lines are left out."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.files import open_file, write_file
from unisono.report.run.files import is_number, read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_loss(run: Path) -> None:
    """Draws `run`/metrics.jsonl into `run`/loss.png."""
    open_file(run / "metrics.jsonl", follow_links=False).close()  # without it there is nothing to draw: an OSError
    write_file(run / "loss.png", png_of(loss_figure(read_rows(run / "metrics.jsonl", []))), durable=False)


def png_of(figure: "Figure") -> memoryview:
    """The figure as a picture."""
    figure.savefig(memory := io.BytesIO(), format="png", dpi=120)
    return memory.getbuffer()


def loss_figure(epochs: Sequence[Mapping[str, Any]]) -> "Figure":
    """The losses of these records of epochs, as a matplotlib figure."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    class ShownFigure(Figure):
        """A notebook shows it, whether pyplot is in use there or not."""

        def _repr_png_(self) -> bytes:
            return bytes(png_of(self))

    figure = ShownFigure(figsize=(7, 4.5), layout="constrained")
    panel = figure.subplots()
    for part in ("train", "validation", "test"):
        both = [(entry.get("epoch"), entry.get(f"{part}_loss")) for entry in epochs]
        points = [point for point in both if all(is_number(value) for value in point)]
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=part)
    panel.set_xlabel("epoch")
    panel.set_ylabel("loss (mean over all samples)")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(True, alpha=0.3)
    panel.legend(loc="best")  # said, or else matplotlib warns on a busy machine that it takes long
    return figure
