"""Inside the process of one probe: calls it and prints its findings, a JSON list in the last line.

python -m unisono.doctor.probe_entry machine
"""

import json
import signal
import sys
from dataclasses import asdict
from importlib import import_module
from types import FrameType

from unisono.doctor.finding import Finding
from unisono.doctor.probes import PROBES
from unisono.errors import UnisonoError


def call(name: str) -> list[Finding]:
    """The findings of a probe; an error of ours is one, too."""
    module, _, function = PROBES[name].place.partition(":")
    try:
        found: list[Finding] = getattr(import_module(f"unisono.doctor.probes.{module}"), function)()
    except UnisonoError as error:
        found = [Finding(PROBES[name].about, "failed", error.message, error.hint)]
    return found


def leave(signum: int, frame: FrameType | None) -> None:
    """Given up by the doctor: leave as by an exception, so that what was started or made here is ended and removed."""
    sys.exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    print("\n" + json.dumps([asdict(finding) for finding in call(sys.argv[1])]), flush=True)
