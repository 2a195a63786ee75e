"""What is shown of an exception: the frames of the user's own code.

The one idea: between the line that failed and the command that was given lie dozens of frames of unisono and of torch,
which do not help a user whose module has a wrong shape. They are left out, and counted; but an exception that was
raised in unisono itself is our bug, and shown whole.

    print(own_traceback(error)); print(where(error))                        # a traceback; "\\n(mine.py:12 in forward)"
    print(ending("rank 1: Traceback ..."))                         # "rank 1: ValueError: it is no good"

Limits: what is not unisono's, Python's or of a package named here counts as the user's own, installed or not.
"""

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException

_OURS = str(Path(__file__).parents[1])
_PYTHONS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_PACKAGES = {"torch", "numpy", "accelerate", "cyclopts"}
_BEGINNING = "Traceback (most recent call last):"
LEFT_OUT = "(left out: "
"""How the line begins that follows a traceback without some of its frames."""


def own_traceback(error: BaseException) -> str:
    """The traceback, as Python prints it; where there are frames of the user's, those alone."""
    whole = TracebackException.from_exception(error)
    left_out = 0
    for one in _chain(whole):
        own = [frame for frame in one.stack if _is_own(frame)]
        if own and not one.stack[-1].filename.startswith(_OURS):
            left_out += len(one.stack) - len(own)
            one.stack = StackSummary.from_list(own)
    text = "".join(whole.format())
    return f"{text}{LEFT_OUT}{left_out} frames of unisono, torch and the like)\n" if left_out else text


def ending(text: str) -> str:
    """Of a traceback as text ("rank 1: Traceback ...") whose it is and what was raised; what is none stays as it is."""
    whose, _, rest = text.partition(_BEGINNING)
    last = rest.rpartition(_BEGINNING)[2]  # of exceptions that were raised while others were handled
    raised = next((line for line in last.splitlines() if line.strip() and not line.startswith(" ")), "")
    return f"{whose}{raised}" if raised and "\n" not in whose else text


def where(error: BaseException) -> str:
    """The last line of the caller's own code that an error of ours came from."""
    frame = own_frame(error)
    return f"\n({frame.filename}:{frame.lineno} in {frame.name})" if frame else ""


def own_frame(error: BaseException) -> FrameSummary | None:
    """Where in the user's own code an error came from; None: it passed through none of it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame)]
    return frames[-1] if frames else None


def _chain(error: TracebackException | None) -> Iterator[TracebackException]:
    """The exception, and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_own(frame: FrameSummary) -> bool:
    name = frame.filename
    if name.startswith(_OURS):  # first: it may be installed among other packages
        return False
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in name:
            return name.rpartition(folder)[2].partition("/")[0] not in _PACKAGES
    return not name.startswith((*_PYTHONS, "<frozen "))
