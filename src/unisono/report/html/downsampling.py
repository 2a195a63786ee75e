"""Fewer points, honestly: a chart of 10,000 epochs keeps its extremes and says what it shows.

>>> thin(np.array([0.0, 9.0, 1.0, 2.0, -5.0, 3.0, 3.0, 3.0]), most=4).tolist()
[0, 1, 4, 7]
>>> stretches(5, most=2)
[slice(0, 3, None), slice(3, 5, None)]

The one idea: a line is cut into stretches, and of each the lowest and the highest point stay, with the first and the
last of all; so a single spike among thousands is seen. Bars and heat maps merge stretches instead: sums, or means with
their extremes beside them.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

POINTS = 600
"""Of a line: about one a pixel."""
CELLS = 100
"""Of a row of bars or of a heat map."""


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, numbers that overflow and means of nothing are gaps, and not worth a warning."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def thin(y: np.ndarray, most: int = POINTS) -> np.ndarray:
    """Which of the values to draw, at most `most`, in order. Values that are not finite (breaks in a line) are drawn if
    nothing else is there."""
    if len(y) <= most:
        return np.arange(len(y))
    kept = {0, len(y) - 1}
    for piece in stretches(len(y), max(1, (most - 2) // 2)):
        part = y[piece]
        if np.isfinite(part).any():
            kept |= {piece.start + int(np.nanargmin(part)), piece.start + int(np.nanargmax(part))}
        else:
            kept.add(piece.start)
    return np.array(sorted(kept))


def stretches(length: int, most: int = CELLS) -> list[slice]:
    """`length` things in at most `most` stretches of one size, the last one smaller."""
    size = max(1, -(-length // most))
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def thinned(shown: int, of: int) -> str:
    """What to say below a chart; nothing if everything is there."""
    return "" if shown >= of else f"{of:,} points as {shown:,}: the lowest and the highest of each stretch are kept."


def merged(shown: int, of: int, what: str) -> str:
    """The same for bars and heat maps."""
    return "" if shown >= of else f"{of:,} epochs in {shown:,} stretches; {what}."
