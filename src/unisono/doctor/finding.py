"""Finding: one line of `unisono doctor`: what was looked at, how it is, what was found, and what to do about it.

    Finding("cores", "ok", "2 cores", facts={"usable": 2})

The one idea: a probe answers in data, so that the same answer is a line on a terminal and a record in a bug report.
"""

from dataclasses import dataclass, field
from typing import Any, final

STATUSES = ("ok", "warning", "missing", "failed")
"""missing: unisono does without it. failed: unisono, or a part of it that was asked for, does not work here."""

SAME_BITS = "same bits"
"""The name of the finding that proves the first promise on this machine."""


@final
@dataclass(frozen=True)
class Finding:
    """What one probe says of one thing. `facts` holds JSON only."""

    name: str
    status: str
    told: str
    fix: str = ""
    """What to do; empty where nothing is to be done."""
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r}, not one of {STATUSES}")
