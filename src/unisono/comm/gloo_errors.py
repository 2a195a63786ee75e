"""What gloo's errors mean: the one place where its texts are read.

>>> read_gloo_error(RuntimeError("[tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:41234"))
GlooFailure(reason='10.0.0.2 is gone', address='10.0.0.2', timed_out=False)

The one idea: gloo raises RuntimeErrors that differ in their text alone, so the text is translated once, here, into
facts; everybody else asks the facts.

Limits: as gloo words it in the versions of torch that pyproject.toml allows; what is not known keeps gloo's own words.
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
"""What it says of a connection that ended -> what became of the other side."""
_PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")


@final
@dataclass(frozen=True)
class GlooFailure:
    """What an error of gloo says."""

    reason: str
    """In words."""
    address: str = ""
    """Of the other side, if it names one."""
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
