"""Study: the order of its runs, carrying them out one after the other, and an estimate of how long they will take.

    with Records.open(path, "scale", studied) as records:
        plan = run_order(cells, repeat=3)
        print(estimate_s(plan, records.all, try_out(cells[0], timeout_s=60), cores=2))
        for record in carry_out(records, plan, RunOptions()): print(record["cell"], record["status"])

    >>> [turn.cell for turn in run_order(["a", "b"], repeat=2)]
    ['a', 'b', 'b', 'a']

The one idea: a study is its records. A run that is over is a line, whether it went well or not; the same study started
again runs only what has no line yet. A mistake in a recipe (exit code 2) would come again: its cell is run only once. A
full disk ends the study (`study_directory.py`).

Rounds go through the cells in turn forwards and backwards (ABBA), so a machine that grows slower meanwhile affects all
cells alike, and cells are compared round by round. The estimate costs one epoch of one cell, not one run: other cells
are assumed to have a perfect speed-up on the available cores, so the estimate is low where scaling is poor; a cell that
has been run counts with what it took.

A record: cell (name), labels, digest (of the recipe), repeat (below 0: a warm-up), run (directory), ended_at (UTC), and
what `run_cell` returns. Limits: one run at a time, on this machine or, by `JobRunner`, on others.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, final

from unisono.errors import UserError
from unisono.study.cell_process import FAILED, FINISHED, run_cell
from unisono.study.cells import Cell
from unisono.study.study_directory import Records, end_if_refused

T = TypeVar("T")
Record: TypeAlias = dict[str, Any]
Tell: TypeAlias = Callable[[str], None]
DEFAULT_TIMEOUT_S = 3600.0


@final
@dataclass(frozen=True)
class Turn(Generic[T]):
    """One run of one cell."""

    cell: T
    repeat: int
    """From 0; below 0 for a warm-up, which does not count."""


def run_order(cells: Sequence[T], repeat: int, warmup: int = 0) -> list[Turn[T]]:
    """Every run, in order."""
    found: list[Turn[T]] = []
    for number, at in enumerate(range(-warmup, repeat)):
        found += [Turn(cell, at) for cell in (cells if number % 2 == 0 else reversed(cells))]
    return found


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
    """Called with every line that a run prints."""
    job_runner: JobRunner | None = None
    """Runs cells; None: a process of this machine does."""

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


@final
@dataclass(frozen=True)
class Trial:
    """What one epoch of one cell took."""

    ranks: int
    start_s: float
    """All but training: start, data, evaluation, files."""
    epoch_s: float
    reason: str = ""
    """Why there is no number."""


def try_out(cell: Cell, timeout_s: float) -> Trial:
    """Runs one epoch of the cell, and leaves nothing."""
    with tempfile.TemporaryDirectory() as folder:
        short = Cell(cell.labels, cell.recipe.with_options(epochs=1))
        record = run_cell(short, Path(folder) / "recipe.toml", Path(folder) / "run", timeout_s)
    if record["status"] != FINISHED:
        return Trial(cell.recipe.ranks.count, 0.0, 0.0, record["reason"])
    train_s = record["summary"]["train_s"]
    return Trial(cell.recipe.ranks.count, max(0.0, record["elapsed_s"] - train_s), train_s)


def estimate_s(plan: Iterable[Turn[Cell]], records: Sequence[Record], trial: Trial, cores: int) -> float:
    """Seconds for the runs that are left."""
    total = 0.0
    for turn in plan:
        found = latest(records, turn.cell)
        if turn.repeat in found:
            continue
        if took := [record["elapsed_s"] for record in found.values()]:
            total += median(took)
        else:
            gain = min(turn.cell.recipe.ranks.count, cores) / min(trial.ranks, cores)
            total += trial.start_s + turn.cell.recipe.learning.epochs * trial.epoch_s / gain
    return total
