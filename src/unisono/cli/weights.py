"""`unisono weights`: what a run has learnt, as a table or as a file for other programs.

    unisono weights runs/mine; unisono weights runs/mine --export mine.npz

Limits: the table shows what fits 80 columns, three digits; all digits are in the exported files.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from unisono.safe_print import print, printable

if TYPE_CHECKING:
    from rich.table import Table

    from unisono.models.base import Array
    from unisono.storage.model_card import ModelCard
    from unisono.storage.weights import Weights


_MOST_LETTERS = 200


def weights(
    run: str,
    /,
    *,
    export: Annotated[str, Parameter(help="Write them to this file: .npz, .safetensors, .txt, .pt or .pth.")] = "",
    force: Annotated[bool, Parameter(help="Replace the file if it exists.", negative="")] = False,
) -> None:
    """Show the weights of a run, or export them.

    unisono computes the hash of the weights again and compares it with the one in the run's summary. The lines below
    the table show how new samples must be prepared; docs/use-what-you-trained.md has an example.

    .npz and .safetensors hold the arrays under their names; .txt holds NAME: and then one value per line; .pt and .pth
    hold a state dict for a torch nn.Sequential of the same layers (model linear: nn.Linear), and need torch.

    Parameters
    ----------
    run
        A run directory of `unisono train`, or a .safetensors file.
    """
    from pathlib import Path

    from unisono.report.terminal.console import Console
    from unisono.storage.weights import export as write
    from unisono.storage.weights import load, verify

    found = load(run)
    if export:
        verify(run, found)
        write(found, Path(export), force=force)
        print(f"Written: {export}, {len(found.arrays)} arrays, weights_sha256 {found.sha256()}")
        return
    console = Console(highlight=False, markup=False)
    console.print(table(found))
    print(f"{_elements(found.parameters):,} parameters", end="")
    print(f", {_elements(found.buffers):,} values in buffers" if found.buffers else "")
    if found.card is not None:
        print("\n".join(lines_of(found.card)))
    if found.epoch is not None:
        print(f"after epoch {found.epoch}")
    print(f"weights_sha256 {found.sha256()}", flush=True)
    print("as in summary.json" if verify(run, found) else "compared with no summary.json of a finished run")


def lines_of(card: "ModelCard") -> list[str]:
    """What is built, and what new samples go through; at most 80 columns."""
    from textwrap import wrap

    # A stranger's file may hold anything, and much of it.
    texts = (card.model, card.data, card.engine, card.precision, card.activation and f", {card.activation}")
    model, data, engine, precision, activation = (printable(text[:_MOST_LETTERS]) for text in texts)
    shape = " x ".join(map(str, card.shape))
    outputs = f"{card.classes:,} classes" if card.classes else f"{card.outputs:,} numbers"
    told = [
        f"{model} ({engine}, {precision}{activation}), trained on {data}",
        f"a sample: {shape}{' tokens' if card.tokens else ''}; outputs: {outputs}",
        f"before the network: {_preprocessing(card)}",
    ]
    return [line for text in told for line in wrap(text, 80)]


def _preprocessing(card: "ModelCard") -> str:
    if card.tokens:
        return f"the place of each character among {len(card.vocabulary):,}" if card.vocabulary else "nothing"
    found = card.normalisation
    if found is None:
        return "a normalisation whose constants were not kept"
    if found.kind == "none":
        return "nothing"
    if len(found.scale) == 1:
        return f"(x - {found.shift[0]}) / {found.scale[0]}, normalisation {found.kind}"
    return f"(x - shift) / scale, normalisation {found.kind}, one of each for each of {len(found.scale):,} features"


def table(found: "Weights") -> "Table":
    """A row an array, parameters above buffers; names and shapes are folded where 80 columns do not suffice."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    shown.add_column("name", overflow="fold")
    shown.add_column("shape", overflow="fold")
    for title in ("elements", "mean", "std", "min", "max", "norm"):
        shown.add_column(title, justify="right", no_wrap=True)
    for kind in (found.parameters, found.buffers):
        for name, array in kind.items():
            # Text: a name may look like rich's markup.
            shape = " x ".join(map(str, array.shape)) or "-"
            shown.add_row(Text(name), shape, f"{array.size:,}", *(_figure(value) for value in _statistics(array)))
        shown.add_section()
    return shown


def _statistics(array: "Array") -> list[float]:
    """Mean, standard deviation, minimum, maximum, norm; nothing of no elements."""
    import numpy as np

    if not array.size:
        return []
    values = array.astype(np.float64).ravel()
    with np.errstate(all="ignore"):  # weights that are not finite show it in the table
        found = values.mean(), values.std(), values.min(), values.max(), np.linalg.norm(values)
    return [float(value) for value in found]


def _figure(value: float) -> str:
    """Three digits in nine columns at most: -1.23e-5, not -1.23e-05."""
    return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _elements(arrays: "Mapping[str, Array]") -> int:
    return sum(array.size for array in arrays.values())
