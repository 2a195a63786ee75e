"""scale.svg: speed-up with both laws, time and accuracy against ranks. Reads rows of `report/studies/scale.py`.

plot(rows, Path("studies/mine/scale.svg"))

A colour for each number of nodes, so that 1x2 and 2x1 can be told apart; bars are ranges over the repeats.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unisono.files import write_file
from unisono.report.studies.scale import baseline_of
from unisono.report.studies.scaling_limits import laws_of
from unisono.study.tables import Row

ACCURACIES = {"train_accuracy": "o", "test_accuracy": "s"}


def plot(rows: Sequence[Row], path: Path) -> None:
    """Of rows that were measured; none: no file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    done = sorted((row for row in rows if row.get("speed_up")), key=lambda row: row["world"])
    if not done:
        return
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    gain, time, accuracy = figure.subplots(1, 3)
    _draw_gain(gain, done)
    for nodes, mine in _by_nodes(done).items():
        _bars(time, mine, "train_s", nodes)
        for name, marker in ACCURACIES.items():
            points = [(row["world"], 100 * row[name]) for row in mine if row.get(name) is not None]
            if points:
                part = name.partition("_")[0]
                told = f"{part}, {nodes} {'node' if nodes == 1 else 'nodes'}"
                accuracy.plot(*zip(*points, strict=True), marker, color=f"C{nodes - 1}", label=told, alpha=0.7)
    for panel, label in ((gain, "speed-up"), (time, "training time (s)"), (accuracy, "accuracy (%)")):
        panel.set_xlabel("ranks")
        panel.set_ylabel(label)
        panel.set_xticks(sorted({row["world"] for row in done}))
        panel.grid(True, alpha=0.3)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize="small", loc="best")  # said: see loss.py
    time.set_ylim(bottom=0)
    with mpl.rc_context({"svg.hashsalt": "unisono"}):  # the same file for the same rows
        figure.savefig(memory := io.BytesIO(), format="svg", metadata={"Date": None})
    write_file(path, memory.getbuffer())


def _draw_gain(panel: Any, rows: Sequence[Row]) -> None:
    base = baseline_of(rows)
    assert base is not None
    least, most = base["world"], max(row["world"] for row in rows)
    x = np.linspace(least, max(most, least + 1), 200)
    panel.plot(x, x / least, ":", color="grey", label="ideal")
    for law, style in zip(laws_of(rows), ("-", "--"), strict=False):
        values = [law.speed_up(ranks) / law.speed_up(least) for ranks in x]
        panel.plot(x, values, style, color="black", linewidth=1, label=f"{law.name}, {100 * law.serial:.1f} % serial")
    for nodes, mine in _by_nodes(rows).items():
        _bars(panel, mine, "speed_up", nodes)


def _bars(panel: Any, rows: Sequence[Row], name: str, nodes: int) -> None:
    values = np.array([[row[name], row[f"{name}_low"], row[f"{name}_high"]] for row in rows])
    spread = np.abs(values[:, 1:].T - values[:, 0])  # (2, point)
    told = f"measured, {nodes} {'node' if nodes == 1 else 'nodes'}"
    panel.errorbar(
        [row["world"] for row in rows], values[:, 0], spread, fmt="o", capsize=3, color=f"C{nodes - 1}", label=told
    )


def _by_nodes(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["nodes"], []).append(row)
    return found
