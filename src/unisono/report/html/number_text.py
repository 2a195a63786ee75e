"""Numbers of untrusted records as short texts: what is no number is an empty text. Shared by the sections.

>>> percent_of(0.9721), seconds_of(0.0815), number_of(129389.2), number_of("<b>"), bytes_of(3 << 20)
('97.21 %', '81.5 ms', '129,389', '', '3 MiB')
>>> number_of(4261658726715324180612983554048.0)
'4.262e+30'
"""

from typing import Any

import numpy as np

from unisono.report.run.files import is_number
from unisono.report.run.load import Run
from unisono.report.run.outcome_and_advice import readable_s
from unisono.resources import readable_bytes

COUNTABLE = 1e15


def finite(value: Any) -> bool:
    """Whether it is a number that can be shown."""
    return is_number(value) and abs(value) < 1e300


def number_of(value: Any) -> str:
    """Four digits, or all of a large number; of a huge one, a power of ten."""
    if not finite(value):
        return ""
    if abs(value) >= COUNTABLE:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def percent_of(share: Any) -> str:
    return f"{100 * share:.2f} %" if finite(share) else ""


def seconds_of(value: Any) -> str:
    return readable_s(float(value)) if finite(value) and value >= 0 else ""


def bytes_of(value: Any) -> str:
    return readable_bytes(value) if finite(value) and value >= 0 else ""


def score_of(run: Run) -> tuple[str, float | None, float | None]:
    """(part, accuracy, loss) on the test part at the end; without one, the last of the best part that there is."""
    if finite(run.summary.get("test_loss")):
        accuracy = run.summary.get("test_accuracy")
        return "test", accuracy if finite(accuracy) else None, run.summary["test_loss"]
    for part in ("test", "validation", "train"):
        losses = run.numbers(f"{part}_loss")
        if np.isfinite(losses).any():
            at = np.flatnonzero(np.isfinite(losses))[-1]
            accuracy = float(run.numbers(f"{part}_accuracy")[at])
            return part, accuracy if np.isfinite(accuracy) else None, float(losses[at])
    return "train", None, None


def counted(value: Any, noun: str) -> str:
    """1 rank, 2 ranks."""
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"


def titled(text: str, run: Run, *, several: bool) -> str:
    """A title that says whose it is, if there are several runs."""
    return f"{run.name}: {text}" if several else text[0].upper() + text[1:]


def status_of(run: Run) -> str:
    """In a word or two."""
    return str(run.summary.get("status", "going on" if run.going_on else "going on, or was cut off"))
