"""not_compiled: classes whose methods `torch.compile` must leave to the interpreter.

The one idea: while a compiled module runs, torch's compiler looks at every Python function that is entered, those that
its C++ calls among them. What moves data between ranks is no part of a graph, so the compiler is told to leave these
methods, and all that they call, alone.

    @not_compiled
    class Group: ...

Limits: where torch is older and has no such setting, its compiler looks at each method.
"""

from types import FunctionType
from typing import TypeVar

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:
    set_code_exec_strategy = None  # type: ignore[assignment]

_C = TypeVar("_C", bound=type)


def not_compiled(cls: _C) -> _C:
    """The class itself; also for methods of its bases that are written in Python in this package."""
    if set_code_exec_strategy is not None:
        skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)  # it, and what it calls
        for base in cls.__mro__:
            for method in vars(base).values():
                if isinstance(method, FunctionType) and base.__module__.startswith("unisono."):
                    set_code_exec_strategy(method.__code__, skip)
    return cls
