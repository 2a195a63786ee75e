"""DataOptions: how data are found, fetched, split and scaled. Each option is defined once, here.

    options = DataOptions(data_dir="/scratch/mnist", validation=0.1, seed=7)

Limits: says nothing of batches and shards; those are `shards.py`. Imports nothing heavy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called while a file is fetched: its name, bytes so far, bytes in all (0: the server did not say)."""


@final
@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """See the module's docstring."""

    data_dir: str = ""
    """Where to look for dataset files first, and where to put fetched ones; ~/.cache/unisono/NAME without it."""

    validation: float = 0.0
    """Fraction of the training part that is held out for validation, such as 0.1; drawn by the seed."""

    normalise: str = "auto"
    """none, unit (0 to 1), standard (mean 0, deviation 1), or auto: unit for images, none for the rest."""

    seed: int = 0
    """Decides the validation part and synthetic data."""

    download: bool = True
    """Whether files that are nowhere on this machine may be fetched."""

    base_url: str = ""
    """Fetch from here instead of the dataset's usual address; file names are appended."""

    timeout_s: float = 30.0
    """How long the server may be silent."""

    progress: Progress | None = None
