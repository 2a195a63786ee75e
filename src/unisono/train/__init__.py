"""The training of a job: its rounds, what follows an epoch, and what a run leaves.

`unisono.train` is the public call, too, and importing any module of this package gives that name to the package: so
the package can be called, and passes the call on to `unisono.runs.training`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *given: Any, **options: Any) -> Any:
        return import_module("unisono.runs.training").train(*given, **options)


sys.modules[__name__].__class__ = _CallablePackage
