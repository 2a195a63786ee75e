"""A run as a notebook shows it below a cell: how it ended, in figures and sentences, and its losses.

    notebook_html(unisono.load("runs/mine"))

Limits: a picture instead of the page's charts: notebooks have neither our style nor our scripts.
"""

from unisono.report.html.blocks import Table, Text, Tiles
from unisono.report.html.markup import brief_html
from unisono.report.html.sections.verdict import section
from unisono.report.run.load import LOSSES, Run
from unisono.report.run.loss_plot import png_of


def notebook_html(run: Run) -> str:
    """HTML that stands alone."""
    verdict = section([run])
    blocks = [] if verdict is None else verdict.blocks
    tiles = [tile for block in blocks if isinstance(block, Tiles) for tile in block.tiles]
    texts = [block for block in blocks if isinstance(block, Text)]
    table = [Table(["", "", ""], [list(tile) for tile in tiles])] if tiles else []
    losses = png_of(run.plot()) if any(run.metrics.get(name) is not None for name in LOSSES) else b""
    return brief_html(f"Run {run.path}", [*table, *texts, *map(Text, run.problems)], losses)
