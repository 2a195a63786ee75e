"""A tracer that ends processes of a run at chosen lines of unisono's own code, for `crash_points.py`.

The one idea: `sys.settrace` counts the lines that a process executes; when it is about to execute a given line for the
n-th time it kills itself. Who was hit, and what everybody executed, is written to memory that survives the victim. So
one run shows which lines there are, and which ones the survivors and the replacements execute after a death.

    fault = Fault.parse("r1.0@strategies/arena/update.py:112#3")  # rank 1, its first process, third time at that line
    ledger = MessageStats(); Tracer(ledger, [fault]).install("s"); run_recipe(recipe); ledger.fired

Faults strike in order: each counts from the moment when the one before has struck. Processes are called r0, r1, ...
(the ranks), s (the one that supervises them) and w (the writer of snapshots); the number behind the dot is how many
processes of that name there were before.

Limits: lines, not instructions, and none inside NumPy: `tests/support/faults/plans.py` spoils half of an update. A line
that is executed again and again while a process waits counts once for each wait, so numbers repeat from run to run, but
for loops that depend on time.
"""

import mmap
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, final

import unisono
from unisono.storage.background_writer import ProcessWriter
from unisono.supervise.processes import ProcessGroup

SOURCE = Path(unisono.__file__).parent
AREAS = ("arena", "strategies", "train", "loop", "optim", "launch", "cli")
WAITS = {"wait", "_wait", "wait_until", "_await", "poll"}
"""Functions that look again and again until something has happened."""
FILES = [str(path.relative_to(SOURCE)) for area in AREAS for path in sorted((SOURCE / area).rglob("*.py"))]
ROLES = ("s", "w", *(f"r{rank}" for rank in range(8)))
LIVES, EVENTS = 12, 1 << 15
"""Processes of a name, and lines of each, that are recorded."""
_SHIFT = 12  # bits for the number of a line
_BASES = {str(SOURCE / name): number << _SHIFT for number, name in enumerate(FILES)}
_FIRED, _BIRTHS, _SUPERVISOR, _TRACES = 0, 16, 40, 64

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
KILL = "kill"


@final
@dataclass(frozen=True)
class Fault:
    """What happens where. `kind`: the process is killed, or the supervising process is asked to end."""

    role: str
    life: int
    line: int
    """As `place` explains it."""
    count: int
    kind: str = KILL

    def __str__(self) -> str:
        prefix = "" if self.kind == KILL else f"{self.kind}="
        return f"{prefix}{self.role}.{self.life}@{place(self.line)}#{self.count}"

    @classmethod
    def parse(cls, text: str) -> "Fault":
        kind, _, rest = text.rpartition("=")
        who, _, where = rest.partition("@")
        role, _, life = who.partition(".")
        file, _, at = where.partition(":")
        line, _, count = at.partition("#")
        return cls(role, int(life), FILES.index(file) << _SHIFT | int(line), int(count), kind or KILL)


def place(line: int) -> str:
    """strategies/arena/update.py:112."""
    return f"{FILES[line >> _SHIFT]}:{line & (1 << _SHIFT) - 1}"


@final
class Ledger:
    """What has happened, in memory that all processes of a run share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4 * (_TRACES + len(ROLES) * LIVES * EVENTS))
        self.words = memoryview(self._memory).cast("i")

    @property
    def fired(self) -> int:
        """How many faults have struck."""
        return self.words[_FIRED]

    def births(self, role: str) -> int:
        """How many processes of this name there were."""
        return self.words[_BIRTHS + ROLES.index(role)]

    def start(self, role: str, life: int) -> int:
        """Where the events of a process begin: their number, then a line each; minus n where fault n has struck."""
        return _TRACES + (ROLES.index(role) * LIVES + min(life, LIVES - 1)) * EVENTS

    def events_after(self, struck: int) -> dict[tuple[str, int], Counter[int]]:
        """How often each process executed which line after so many faults had struck."""
        found: dict[tuple[str, int], Counter[int]] = {}
        for role in ROLES:
            for life in range(min(self.births(role), LIVES)):
                start = self.start(role, life)
                events = self.words[start + 1 : start + 1 + self.words[start]].tolist()
                if struck:
                    marks = [at for at, line in enumerate(events) if line == -struck]
                    events = events[marks[0] :] if marks else []
                if lines := Counter(line for line in events if line >= 0):
                    found[role, life] = lines
        return found

    def close(self) -> None:
        self.words.release()
        self._memory.close()


@final
class Tracer:
    """Of one process at a time: whoever is forked is nobody until it is told who it is."""

    def __init__(self, ledger: Ledger, faults: Sequence[Fault]) -> None:
        self._ledger, self._words, self._faults = ledger, ledger.words, list(faults)
        self._bases: dict[CodeType, int] = {}
        self._writing = self._later = False
        self._waiting = "", 0
        self._role, self._life, self._start = "", 0, 0
        self._struck, self._target, self._left = -1, -1, 0

    def install(self, role: str, *, later: bool = False) -> None:
        """This process is `role` from here on; its ranks and writers are traced, too. later: ranks from `begin` on."""
        self._later = later
        os.register_at_fork(after_in_child=self._leave)
        start, write = ProcessGroup.start, ProcessWriter.start

        def started(process_group: ProcessGroup, rank: int, body: Callable[[int], int]) -> None:
            name = "w" if self._writing else f"r{rank}"
            start(process_group, rank, partial(self._live, name, self._born(name), body))

        def writes(writer: ProcessWriter, work: Callable[[], str]) -> None:
            self._writing = True
            try:
                write(writer, work)
            finally:
                self._writing = False

        ProcessGroup.start, ProcessWriter.start = started, writes  # type: ignore[method-assign]
        self._words[_SUPERVISOR] = os.getpid()
        self.enter(role, self._born(role))

    def _born(self, role: str) -> int:
        at = _BIRTHS + ROLES.index(role)
        self._words[at] += 1
        return self._words[at] - 1

    def _live(self, role: str, life: int, body: Callable[[int], int], sink: int) -> int:
        self._waiting = role, life
        if self._later:
            sys.settrace(None)
        else:
            self.enter(role, life)
        return body(sink)

    def enter(self, role: str, life: int) -> None:
        """From now on this process is traced."""
        self._role, self._life, self._start = role, life, self._ledger.start(role, life)
        self._struck = -1
        threading.settrace(self._watch_thread)
        sys.settrace(_Thread(self).enter)

    def begin(self) -> None:
        """For ranks that are traced `later`: from here on."""
        self.enter(*self._waiting)

    def _leave(self) -> None:
        self._role, self._struck, self._target = "", -1, -1

    def _watch_thread(self, frame: FrameType, event: str, given: Any) -> Any:
        tracer = _Thread(self).enter
        sys.settrace(tracer)
        return tracer(frame, event, given)

    def base(self, code: CodeType) -> int:
        """The number of line 0 of the code's file; -1 if it is not to be traced."""
        found = self._bases.get(code)
        if found is None:
            found = -1 if code.co_name == "<module>" else _BASES.get(code.co_filename, -1)
            self._bases[code] = found
        return found

    def count(self, line: int) -> None:
        """A line is about to be executed."""
        words = self._words
        if not self._role:
            return
        if words[_FIRED] != self._struck:
            self._arm(words[_FIRED])
        self._record(line)
        if line == self._target:
            self._left -= 1
            if not self._left:
                self._strike(self._faults[self._struck])

    def _record(self, entry: int) -> None:
        number = self._words[self._start]
        if number < EVENTS - 1:
            self._words[self._start + 1 + number] = entry
            self._words[self._start] = number + 1

    def _arm(self, struck: int) -> None:
        self._struck, self._target = struck, -1
        if struck:
            self._record(-struck)
        if struck < len(self._faults):
            fault = self._faults[struck]
            if (fault.role, fault.life) == (self._role, self._life):
                self._target, self._left = fault.line, fault.count

    def _strike(self, fault: Fault) -> None:
        self._words[_FIRED] += 1
        os.kill(os.getpid() if fault.kind == KILL else self._words[_SUPERVISOR], SIGNALS[fault.kind])


@final
class _Thread:
    """The tracer of one thread."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._waits = 0
        self._seen: set[int] = set()

    def enter(self, frame: FrameType, event: str, given: Any) -> Any:
        code = frame.f_code
        if self._tracer.base(code) < 0:
            return None
        if code.co_name not in WAITS:
            return self.line
        if not self._waits:
            self._seen.clear()
        self._waits += 1
        return self.wait

    def line(self, frame: FrameType, event: str, given: Any) -> Any:
        if event == "line":
            line = self._tracer.base(frame.f_code) + frame.f_lineno
            if self._waits:
                if line in self._seen:
                    return self.line
                self._seen.add(line)
            self._tracer.count(line)
        return self.line

    def wait(self, frame: FrameType, event: str, given: Any) -> Any:
        if event == "return":
            self._waits -= 1
        else:
            self.line(frame, event, given)
        return self.wait
