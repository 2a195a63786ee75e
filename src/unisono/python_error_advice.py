"""Advice for errors of Python that only their text tells apart; the one place where those texts are read.

>>> is_thread_shortage(RuntimeError("can't start new thread"))
True

Limits: as CPython words them since 3.11.
"""

_NO_THREAD = "can't start new thread"
_ADVICE = {
    "Could not determine home directory": "there is no such home: set HOME, or give paths without ~ (data: --data-dir)",
    _NO_THREAD: "no more threads may be started (ulimit -u, pids.max of the container or job)",
    "No usable temporary directory": "set TMPDIR to a directory that you may write to",
}
"""What Python says of a machine that lacks something -> what to do about it."""


def is_thread_shortage(error: BaseException) -> bool:
    """Whether no more threads may be started."""
    return isinstance(error, RuntimeError) and _NO_THREAD in str(error)


def advice_on(error: BaseException) -> str:
    """What the user can do about a machine that lacks something; empty if the error is not about that."""
    text = str(error)
    return next((advice for words, advice in _ADVICE.items() if words in text), "")
