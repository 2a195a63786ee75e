"""`unisono data`: which data there are, fetch them, check them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from unisono.safe_print import print

if TYPE_CHECKING:
    from unisono.data.dataset import Dataset, Progress

data = App(name="data", help="List, fetch and check datasets.", help_epilogue="Example: unisono data check digits")

DataDir = Annotated[str, Parameter(help="Directory of the files; ~/.cache/unisono/NAME if empty.")]


@data.command(name="list", help_epilogue="Example: unisono data list")
def list_data(*, data_dir: DataDir = "") -> None:
    """List the names that --data takes, and where the data are."""
    from unisono.data.sources import ABOUT, OWN, whereabouts

    for name, about in ABOUT.items():
        print(f"{name:<18}{about}\n{'':<18}{whereabouts(name, data_dir)}")
    for name, about in OWN.items():
        print(f"{name:<18}{about}")


@data.command(help_epilogue="Example: unisono data fetch mnist --data-dir path/to/mnist")
def fetch(
    name: str,
    *,
    data_dir: DataDir = "",
    base_url: Annotated[str, Parameter(help="Fetch from here; file names are appended.")] = "",
    timeout_s: Annotated[
        float, Parameter(help="Seconds without an answer of the server after which the fetch fails.")
    ] = 30.0,
) -> None:
    """Fetch a dataset, or say where it is already.

    unisono compares every file with its checksum. An interrupted fetch keeps its files, and the next one continues.

    Parameters
    ----------
    name
        mnist or fashion-mnist; all others need no fetch.
    """
    from unisono.data.dataset import DataOptions
    from unisono.data.mnist_sets import SETS, provide, read_images
    from unisono.data.sources import ABOUT, whereabouts
    from unisono.errors import unknown_name

    if name not in ABOUT:
        raise unknown_name("dataset", name, ABOUT)
    if name not in SETS:
        print(f"{name}: {whereabouts(name)}, there is nothing to fetch")
        return
    with _progress() as progress:
        options = DataOptions(data_dir=data_dir, base_url=base_url, timeout_s=timeout_s, progress=progress)
        place, fetched = provide(name, options)
    read_images(name, place)
    print(f"{name}: {'fetched into' if fetched else 'is already in'} {place}, checksums ok")


@data.command(help_epilogue="Example: unisono data check digits")
def check(name: str, *, data_dir: DataDir = "") -> None:
    """Load data, check them, and show what training would see. Nothing is fetched.

    It warns about doubtful data: labels that count from 1, one-hot rows, images with the channels last.

    Parameters
    ----------
    name
        A name from `unisono data list`, a directory of .npy files, an .npz file, or FILE.py:FUNCTION.
    """
    from rich.table import Table

    from unisono.data.checks import data_warnings
    from unisono.data.dataset import PARTS, DataOptions
    from unisono.data.sources import load, origin
    from unisono.report.terminal.console import Console

    options = DataOptions(data_dir=data_dir, download=False)
    dataset = load(name, options)
    table = Table("part", "rows", "x", "y", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for part in PARTS:
        x, y = dataset.part(part)
        if len(x):
            table.add_row(part, f"{len(x):,}", *(f"{tuple(array.shape)} {array.dtype}" for array in (x, y)))
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"{name}: {origin(name, options)}", markup=False)
    console.print(table)
    console.print("\n".join(_facts(dataset)), markup=False)
    for doubt in data_warnings(dataset):
        print(f"Warning: {doubt}", file=sys.stderr)


def _facts(dataset: "Dataset") -> list[str]:
    """What else one wants to know of data: one line each."""
    import numpy as np

    from unisono.resources import readable_bytes

    x, y = dataset.train_x, dataset.train_y
    shape = " x ".join(map(str, dataset.shape))
    image = ", as an image: channels x height x width" if len(dataset.shape) == 3 else ""
    facts = [
        f"a sample: {shape}{image} ({dataset.features} features); in memory: {readable_bytes(dataset.nbytes)}",
        f"train_x: {x.min():g} to {x.max():g}, mean {x.mean(dtype=np.float64):.4g}",
    ]
    if not dataset.classes:
        return [*facts, f"regression with {dataset.outputs} outputs: {y.min():.4g} to {y.max():.4g}; all values finite"]
    counts = np.bincount(y.ravel(), minlength=dataset.classes)
    few, many = counts.argmin(), counts.argmax()
    facts.append(
        f"{dataset.classes} classes: {counts[few]:,} (class {few}) to {counts[many]:,} (class {many}) to train"
    )
    return facts


@contextmanager
def _progress() -> Iterator["Progress"]:
    """A bar for each file on a terminal, a line for each elsewhere."""
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    from unisono.report.terminal.console import Console

    status = Console(stderr=True)
    columns = (TextColumn("{task.description:<28}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=status, auto_refresh=False, disable=not status.is_terminal) as bars:

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total or None)
                if not status.is_terminal:
                    status.print(f"fetching {name}")
            bars.update(tasks[name], completed=done, refresh=True)

        yield show
