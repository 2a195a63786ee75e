"""One trial of `crash_points.py`: a small run, the faults of one plan, and whether it has found what it should.

    outcome = Trial("sync", [Fault.parse("r1.0@strategies/arena/update.py:112#3")]).run(quiet("sync", folder), folder)

The one idea: the run is a process group of its own (`torment.py`). If it was asked to end, or its supervising process
was killed, it is started again until it has come to its end; then nothing of it may be left.
"""

import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

from crash_jobs import JOBS, Found
from crash_tracer import Fault, Ledger, Tracer, place
from torment import Run

from unisono.errors import RESUME_ME, UnisonoError

EQUAL, DIFFERENT, FAILED, HUNG, LEFT = "equal", "different", "failed", "hung", "left processes behind"
LIMIT_S = 150.0
"""A run of half a second that takes so long hangs: before the supervisor ends ranks that do not move, after 60 s."""
_GONE_S = 10.0


@final
@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    verdict: str
    fired: int
    """Faults that have struck."""
    starts: int = 1
    """How often the run was started."""
    told: str = ""
    after: dict[tuple[str, int], Counter[int]] = field(default_factory=dict)
    """What each process executed after the last fault had struck."""


@final
@dataclass(frozen=True)
class Trial:
    """A plan: these faults, one after the other."""

    job: str
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return f"{self.job}:{'+'.join(map(str, self.faults))}"

    @classmethod
    def parse(cls, text: str) -> "Trial":
        job, _, faults = text.partition(":")
        return cls(job, tuple(Fault.parse(fault) for fault in faults.split("+") if fault))

    def run(self, quiet: Found, folder: Path) -> Outcome:
        """In a folder of its own below `folder`, which is removed unless something is wrong."""
        place = Path(tempfile.mkdtemp(dir=folder, prefix=f"{self.job}-"))
        ledger = Ledger()
        try:
            outcome = self._run(quiet, place, ledger)
        finally:
            ledger.close()
        if outcome.verdict == EQUAL:
            shutil.rmtree(place)
        return outcome

    def _run(self, quiet: Found, folder: Path, ledger: Ledger) -> Outcome:
        job, log = JOBS[self.job], folder / "log.txt"
        verdict, told, starts = "", "", 0
        while not verdict:
            starts += 1
            with Run(partial(job.work, folder, Tracer(ledger, self.faults)), log) as run:
                if run.running(LIMIT_S):
                    verdict, told = HUNG, f"after {LIMIT_S:g} s: {_whereabouts(ledger)}"
                    break
                code = run.code()
            if left := _left(run.pid):
                verdict, told = LEFT, f"{left}"
            elif (found := job.found(folder)) and code not in (0, -signal.SIGKILL):
                verdict, told = FAILED, f"exit code {code} of a finished run: {log.read_text()[-1500:]}"
            elif found:
                expected = job.expected(quiet, found, self.faults)
                verdict = EQUAL if found == expected else DIFFERENT
                told = "" if found == expected else _difference(found, expected)
            elif code not in (RESUME_ME, -signal.SIGKILL) or starts > 2 + len(self.faults):
                verdict, told = FAILED, f"exit code {code}: {log.read_text()[-1500:]}"
        fired = ledger.fired
        return Outcome(verdict, fired, starts, told and f"{told}\n    ({folder})", ledger.events_after(fired))


def quiet(name: str, folder: Path) -> Found:
    """What a job finds on one rank, if nobody is killed."""
    place = Path(tempfile.mkdtemp(dir=folder, prefix=f"{name}-quiet-"))
    with Run(partial(JOBS[name].work, place, None), place / "log.txt") as run:
        run.running(LIMIT_S)
    if not (found := JOBS[name].found(place)):
        raise UnisonoError(f"the quiet run of {name} failed: {(place / 'log.txt').read_text()[-2000:]}")
    return found


def _left(group: int) -> list[int]:
    """Processes of a run that have not ended in time; the kernel ends ranks whose supervisor was killed."""
    deadline = time.monotonic() + _GONE_S
    while living := _living(group):
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            return living
        time.sleep(0.002)
    return []


def _living(group: int) -> list[int]:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, pgrp = path.read_text().rpartition(") ")[2].split()[:3]
            if int(pgrp) == group and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def _whereabouts(ledger: Ledger) -> str:
    """The last line of each process that was recorded."""
    last = {}
    for role, life in ledger.events_after(0):
        start = ledger.start(role, life)
        events = ledger.words[start + 1 : start + 1 + ledger.words[start]].tolist()
        last[f"{role}.{life}"] = place(next(line for line in reversed(events) if line >= 0))
    return ", ".join(f"{who} at {where}" for who, where in last.items())


def _difference(found: Found, expected: Found) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return "; ".join(f"{key}: {_short(found.get(key))} instead of {_short(expected.get(key))}" for key in keys)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 200 else f"{text[:200]}..."
