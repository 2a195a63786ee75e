"""unisono: data-parallel training in which adding processes changes nothing but the time.

    import unisono
    unisono.run(lambda world: world.rank, ranks=4)

The public names are those below; the rest may change from version to version.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.platform != "linux":
    raise ImportError(f"unisono runs on Linux; this is {sys.platform}. HINT: use a Linux machine, container or WSL 2")

__version__ = "0.1.0"

_NAMES = {
    "run": "unisono.launch.local",
    "join": "unisono.launch.connect",
    "load": "unisono.report.run",
    "keep": "unisono.train.keeping",
    "World": "unisono.world",
    "Run": "unisono.report.run",
    "UnisonoError": "unisono.errors",
    "UserError": "unisono.errors",
    "CommError": "unisono.errors",
    "CommTimeout": "unisono.errors",
    "Mismatch": "unisono.errors",
    "RankFailed": "unisono.errors",
    "RankLost": "unisono.errors",
    "AskedToEnd": "unisono.errors",
}

__all__ = [
    "run",
    "join",
    "load",
    "keep",
    "World",
    "Run",
    "UnisonoError",
    "UserError",
    "CommError",
    "CommTimeout",
    "Mismatch",
    "RankFailed",
    "RankLost",
    "AskedToEnd",
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
    from unisono.report.run import Run, load
    from unisono.train.keeping import keep
    from unisono.world import World


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # Lazily, so that `unisono --help` does not pay for NumPy.
    if name not in _NAMES:
        raise AttributeError(f"module 'unisono' has no attribute {name!r}; it has {', '.join(_NAMES)}")
    return getattr(import_module(_NAMES[name]), name)
