"""Study: cells run one after the other, each in a process of its own; what is there already is not run again.

    with Records.open(path, "scale", studied) as records:
        for record in carry_out(records, turns(cells, repeat=3), RunOptions()): print(record["cell"], record["status"])

The one idea: a study is its records. A run that is over is a line, whether it went well or not; the same study started
again runs only what has no line yet. A mistake in a recipe (exit code 2) would come again: its cell is run only once.
A disk that takes nothing more ends the study (`disk_errors.py`).

A record: cell (name), labels, digest (of the recipe), repeat (below 0: a warm-up), run (directory), ended_at (UTC), and
what `process.run_cell` says. Limits: one run at a time, on this machine or, by `JobRunner`, on others.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, final

from unisono.errors import UserError
from unisono.study.cells import Cell
from unisono.study.disk_errors import end_if_refused
from unisono.study.process import FAILED, FINISHED, run_cell
from unisono.study.records import Records
from unisono.study.run_order import Turn

Record: TypeAlias = dict[str, Any]
Tell: TypeAlias = Callable[[str], None]
DEFAULT_TIMEOUT_S = 3600.0


class JobRunner(Protocol):
    """Runs a cell not in a process of this machine, but by a batch system."""

    def pending(self, run: Path) -> bool:
        """Whether a run that an earlier command began in this directory goes on, or has ended well since."""

    def __call__(self, cell: Cell, recipe: Path, run: Path, timeout_s: float, on_line: Tell, /) -> Record:
        """As `process.run_cell`; goes on with a run that is pending."""


@final
@dataclass(frozen=True)
class RunOptions:
    """How runs are treated."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    """A run that takes longer is ended, and counts as failed."""
    retry: bool = False
    """Run again what failed before."""
    on_line: Callable[[Cell, str], None] = lambda cell, line: None
    """Told of every line that a run prints."""
    job_runner: JobRunner | None = None
    """Who runs cells; a process of this machine if nobody is given."""

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s < float("inf"):
            raise UserError(f"--timeout-s is {self.timeout_s}", hint="give a number above 0")


def carry_out(records: Records, plan: Iterable[Turn[Cell]], terms: RunOptions) -> Iterator[Record]:
    """Runs what is not there yet; a record for every turn, new or found, except for those that failed for good."""
    earlier = len(records.all)
    for turn in plan:
        found = latest(records.all, turn.cell)
        tried_now = any(record["digest"] == turn.cell.digest for record in records.all[earlier:])
        again = terms.retry and not tried_now
        if hopeless(found.values()) and not again:
            continue
        record = found.get(turn.repeat)
        if record is None or (terms.retry and record["status"] == FAILED):
            record = _run(records, turn, terms)
        yield record


def _run(records: Records, turn: Turn[Cell], terms: RunOptions) -> Record:
    cell, mark = turn.cell, f"{turn.repeat}" if turn.repeat >= 0 else f"warmup{-turn.repeat}"
    run = f"runs/{cell.slug}-{mark}"
    told = {"cell": cell.name, "labels": dict(cell.labels), "digest": cell.digest, "repeat": turn.repeat, "run": run}
    begun = terms.job_runner is not None and terms.job_runner.pending(records.path / run)
    found = (terms.job_runner or run_cell)(
        cell,
        records.path / "cells" / f"{cell.slug}.toml",
        records.path / run if begun else records.clear(run),
        terms.timeout_s,
        lambda line: terms.on_line(cell, line),
    )
    end_if_refused(found, records.path / run)
    record = told | {"ended_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())} | found
    records.add(record)
    return record


def latest(records: Iterable[Record], cell: Cell) -> dict[int, Record]:
    """The newest record of each of the cell's repeats."""
    return {record["repeat"]: record for record in records if record["digest"] == cell.digest}


def hopeless(found: Iterable[Record]) -> bool:
    """Whether the recipe itself is a mistake, so that running it again would say the same."""
    return any(record["status"] == FAILED and record["exit_code"] == 2 for record in found)


def counted(records: Iterable[Record], cell: Cell) -> dict[int, Record]:
    """The cell's finished runs by repeat, without warm-ups."""
    return {
        repeat: record
        for repeat, record in sorted(latest(records, cell).items())
        if repeat >= 0 and record["status"] == FINISHED
    }


def losses(records: Iterable[Record], cell: Cell) -> dict[str, Any]:
    """failed: how many of the cell's runs did, warm-ups apart; failed_reason: of the last one, or empty."""
    runs = latest(records, cell).items()
    reasons = [record["reason"] for repeat, record in sorted(runs) if repeat >= 0 and record["status"] == FAILED]
    return {"failed": len(reasons), "failed_reason": reasons[-1] if reasons else ""}


def failure(records: Sequence[Record], cell: Cell) -> str:
    """Why the cell has no finished run; empty if it has one, or none was tried."""
    if counted(records, cell):
        return ""
    failed = [record for record in latest(records, cell).values() if record["status"] == FAILED]
    return failed[-1]["reason"] if failed else ""
