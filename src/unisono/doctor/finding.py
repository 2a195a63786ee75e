"""Finding: one line of `unisono doctor`: what was looked at, its status, what was found, and what to do about it.

    finding = Finding("cores", "ok", "2 cores", facts={"usable": 2})
    print(line(finding)); print(sentence([finding])); print(json.dumps(record([finding])))

The one idea: a probe answers in data, so the same answer is a line on a terminal and a record in a bug report.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

from unisono import __version__
from unisono.safe_print import printable

STATUSES = ("ok", "warning", "missing", "failed")
"""missing: unisono does without it. failed: unisono, or a part of it that was asked for, does not work here."""
SAME_BITS = "same bits"
"""The name of the finding that proves the first promise on this machine."""
MARKS = {"ok": "ok", "warning": "warning", "missing": "missing", "failed": "FAILED"}
WIDTH = max(map(len, MARKS.values()))
NAME_WIDTH = 16


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


def line(finding: Finding) -> str:
    """'ok       cores            2, all usable', and the fix below it."""
    head = f"{MARKS[finding.status]:<{WIDTH}}  {printable(finding.name):<{NAME_WIDTH}}  {printable(finding.told)}"
    return head if not finding.fix else f"{head}\n{'':{WIDTH + NAME_WIDTH + 4}}-> {printable(finding.fix)}"


def sentence(findings: Sequence[Finding]) -> str:
    """How this machine is for unisono."""
    failed, warned, missing = ([f.name for f in findings if f.status == s] for s in ("failed", "warning", "missing"))
    if failed:
        return f"Something that is installed does not work here: {', '.join(failed)}; the arrows say what to do."
    proven = any(finding.name == SAME_BITS and finding.status == "ok" for finding in findings)
    tried = "unisono works here, with the same bits on 1 and 2 ranks" if proven else "unisono should work here"
    rest = [
        f"worth a look: {', '.join(warned)}" if warned else "",
        f"done without: {', '.join(missing)}" if missing else "",
    ]
    return "; ".join([tried, *(part for part in rest if part)]) + "."


def record(findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings as JSON, for a bug report."""
    return {
        "unisono": __version__,
        "sentence": sentence(findings),
        "findings": [asdict(finding) for finding in findings],
    }
