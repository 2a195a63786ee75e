"""loss.png: the losses of a run against the epoch. Reads metrics.jsonl and nothing else; damaged lines are left out."""

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from unisono.files import open_file, write_file


def plot_loss(run: Path) -> None:
    """Draws `run`/metrics.jsonl into `run`/loss.png."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs: list[dict[str, Any]] = []
    with open_file(run / "metrics.jsonl", follow_links=False) as file:
        text = file.read().decode(errors="replace")
    for line in text.splitlines():
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and "epoch" in entry:
                epochs.append(entry)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    panel = figure.subplots()
    for part in ("train", "validation", "test"):
        points = [(entry["epoch"], entry[f"{part}_loss"]) for entry in epochs if f"{part}_loss" in entry]
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=part)
    panel.set_xlabel("epoch")
    panel.set_ylabel("loss (mean over all samples)")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.grid(True, alpha=0.3)
    panel.legend(loc="best")  # said, or else matplotlib warns on a busy machine that it takes long
    figure.savefig(memory := io.BytesIO(), format="png", dpi=120)
    write_file(run / "loss.png", memory.getbuffer(), durable=False)
