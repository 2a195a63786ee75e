"""`unisono doctor`: what is here, what works, what to do about the rest.

unisono doctor; unisono doctor --json > doctor.json
"""

import json
from typing import Annotated

from cyclopts import Parameter

from unisono.errors import UnisonoError, UserError


def doctor(
    *,
    self_test: Annotated[
        bool, Parameter(help="Also train on 1 and 2 ranks, by NumPy and by torch if it is there, and compare the bits.")
    ] = True,
    json_: Annotated[
        bool, Parameter(name="--json", help="All of it, to paste into a bug report.", negative="")
    ] = False,
) -> None:
    """Look at this machine: cores, memory, BLAS, MPI, torch, SLURM, and whether unisono works on it.

    Each line is ok, warning, missing (unisono does without it) or FAILED, with what to do about it. Shared memory, MPI
    and gloo are tried with 2 ranks for real. Each look is given up after 25 seconds; half a minute in all is usual. The
    exit code is 1 if something failed.
    """
    from rich.console import Console

    from unisono.doctor.examining import examine
    from unisono.doctor.telling import line, record, sentence

    _refuse_ranks()
    findings = []
    status = Console(stderr=True, highlight=False)

    def tell(text: str) -> None:
        """On a terminal, in a line that the next one replaces. No thread draws it: this process starts others."""
        if status.is_terminal:
            status.print(f"{text:<60}", end="\r")

    for finding in examine(self_test=self_test, tell=lambda about: tell(f"looking at {about} ...")):
        tell("")
        findings.append(finding)
        if not json_:
            print(line(finding), flush=True)
    tell("")
    if json_:
        print(json.dumps(record(findings), indent=1))
    else:
        print(f"\n{sentence(findings)}")
    if any(finding.status == "failed" for finding in findings):
        raise UnisonoError("something failed: see above")


def _refuse_ranks() -> None:
    """It starts ranks itself. Launchers that contradict each other are a finding, not the end."""
    from unisono.launch.environments import detect

    try:
        size = detect().size
    except UserError:
        return
    if size > 1:
        raise UserError(f"doctor was started as {size} ranks, and starts its own", hint="run it once: unisono doctor")
