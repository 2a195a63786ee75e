"""What the doctor says: a line for each finding, one plain sentence at the end, and the same as JSON. Text only.

print(line(finding)); print(sentence(findings))
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from unisono import __version__
from unisono.doctor.finding import SAME_BITS, Finding
from unisono.terminal import printable

MARKS = {"ok": "ok", "warning": "warning", "missing": "missing", "failed": "FAILED"}
WIDTH = max(map(len, MARKS.values()))
NAME_WIDTH = 16


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
    """For a bug report."""
    return {
        "unisono": __version__,
        "sentence": sentence(findings),
        "findings": [asdict(finding) for finding in findings],
    }
