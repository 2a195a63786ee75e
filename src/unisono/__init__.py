"""unisono: data-parallel training in which adding processes changes nothing but the time.

    import unisono
    unisono.train(model="mlp:64", data="digits", epochs=3, ranks=4)
    unisono.run(lambda world: world.rank, ranks=4)

The public names are those below; the rest may change from version to version.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "train": "unisono.runs.train_function",
    "load": "unisono.report.run.load",
    "run": "unisono.launch.local",
    "join": "unisono.launch.connect",
    "keep": "unisono.runs.loop_checkpoint.checkpoint",
    "Recipe": "unisono.recipe",
    "Run": "unisono.report.run.load",
    "World": "unisono.world",
    "UnisonoError": "unisono.errors",
    "UserError": "unisono.errors",
    "CommError": "unisono.errors",
    "CommTimeout": "unisono.errors",
    "Mismatch": "unisono.errors",
    "RankFailed": "unisono.errors",
    "RankLost": "unisono.errors",
    "AskedToEnd": "unisono.errors",
    "Halted": "unisono.runs.early_end",
}

__all__ = [
    "train",
    "load",
    "run",
    "join",
    "keep",
    "Recipe",
    "Run",
    "World",
    "UnisonoError",
    "UserError",
    "CommError",
    "CommTimeout",
    "Mismatch",
    "RankFailed",
    "RankLost",
    "AskedToEnd",
    "Halted",
    "__version__",
]

if TYPE_CHECKING:
    from unisono.errors import (
        AskedToEnd,
        CommError,
        CommTimeout,
        Mismatch,
        RankFailed,
        RankLost,
        UnisonoError,
        UserError,
    )
    from unisono.launch.connect import join
    from unisono.launch.local import run
    from unisono.recipe import Recipe
    from unisono.report.run.load import Run, load
    from unisono.runs.early_end import Halted
    from unisono.runs.loop_checkpoint.checkpoint import keep
    from unisono.runs.train_function import train
    from unisono.world import World


def __dir__() -> list[str]:
    return __all__


def check_platform() -> None:
    """Not on import: `import torch` loads this package where it is installed (`torch/autoload.py`)."""
    if sys.platform != "linux":
        raise ImportError(f"unisono runs on Linux; this is {sys.platform}. HINT: use Linux, a container or WSL 2")


def __getattr__(name: str) -> Any:
    # Lazily, so that `unisono --help` does not pay for NumPy.
    check_platform()
    if name not in _NAMES:
        raise AttributeError(f"module 'unisono' has no attribute {name!r}; it has {', '.join(_NAMES)}")
    return getattr(import_module(_NAMES[name]), name)
