"""What gloo's errors mean: the one place that reads their texts.

>>> read_gloo_error(RuntimeError("[tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:41234"))
GlooFailure(reason='10.0.0.2 is gone', address='10.0.0.2', timed_out=False)

The one idea: gloo raises RuntimeErrors that differ in their text alone. This file turns the text into facts; all other
code asks the facts.

Limits: it knows the texts of the versions of torch that pyproject.toml allows; unknown texts are passed on unchanged.
"""

import re
from dataclasses import dataclass
from typing import final

_TIMED_OUT = "Timed out"
_ENDS = {
    "Connection closed": "is gone",
    "Connection reset": "is gone",
    "Connection timed out": "does not answer any more",
    "No route to host": "cannot be reached any more",
    "Network is unreachable": "cannot be reached any more",
}
"""Text of gloo about a connection that ended -> what happened to the other side."""
_PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")


@final
@dataclass(frozen=True)
class GlooFailure:
    """The facts of an error of gloo."""

    reason: str
    """For people."""
    address: str = ""
    """Of the other side, if the text names it."""
    timed_out: bool = False


def read_gloo_error(error: RuntimeError) -> GlooFailure:
    """What an error of a collective or a message over gloo means."""
    text = str(error)
    if _TIMED_OUT in text:
        return GlooFailure(text, timed_out=True)
    peer = _PEER.search(text)
    address = peer[1] if peer else ""
    ended = next((meaning for sign, meaning in _ENDS.items() if sign in text), "")
    return GlooFailure(f"{address or 'the other side'} {ended}" if ended else text, address)
