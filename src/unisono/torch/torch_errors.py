"""for_torch: an error of this package as torch's own backends would raise it, which is as a RuntimeError, too.

The one idea: scripts that catch RuntimeError around collectives, as they do with gloo, must catch what this backend
raises. Elsewhere in the package a RuntimeError is torch's and never ours, so only errors that go to torch become both.

    raise for_torch(CommError("this process group is broken"))
"""

from functools import lru_cache
from typing import Any, TypeVar

from unisono.errors import UnisonoError

_E = TypeVar("_E", bound=BaseException)


def for_torch(error: _E) -> _E:
    """The same object; an error that is not of this package is left as it is."""
    if isinstance(error, UnisonoError) and not isinstance(error, RuntimeError):
        kind: Any = type(error)
        error.__class__ = _both(kind)
    return error


@lru_cache(maxsize=32)
def _both(kind: type[UnisonoError]) -> Any:
    """A class of the same name that is a RuntimeError as well."""

    def reduced(self: UnisonoError) -> tuple[Any, ...]:
        return _rebuilt, (kind, self.args), self.__dict__

    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduced}
    return type(kind.__name__, (kind, RuntimeError), names)


def _rebuilt(kind: type[UnisonoError], args: tuple[Any, ...]) -> UnisonoError:
    """What pickle makes it of, which cannot find a class that was made here."""
    return for_torch(kind.__new__(kind, *args))
