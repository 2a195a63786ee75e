"""Kills processes of small runs at every line of unisono's own code, one run a point, and compares what they find.

    python benchmarks/crash_points.py --points 3000 --seed 1                     # about 25 minutes on two cores
    python benchmarks/crash_points.py --points 0                                 # all of them: hours
    python benchmarks/crash_points.py --points 200 --jobs torch,loop
    python benchmarks/crash_points.py --only
    "sync:r1.0@strategies/arena/update.py:112#3+r0.0@arena/membership/member.py:190#1"

The one idea: a run that is traced tells which lines each process executes (`crash_tracer.py`). Each line, and each time
that it is executed, is a point at which that process is killed, or the run asked to end; and what the survivors, the
replacements and the resumed run execute afterwards are the points of second faults. Every run must end with the hash
of the weights and the records of the epochs that the quiet one has on one rank.

Lines that were not hit yet come first, then other times at the same lines. Printed are the points of each kind, how
many runs were equal, different, failed or hung, and the share of the lines that were hit. A run whose faults did not
all strike is no point.

Limits: see `crash_tracer.py`. Runs take turns on the cores with whatever else is there; nothing printed depends on
how long they take, but a run that takes 150 s counts as hung.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import final

from crash_jobs import JOBS, KINDS, Found
from crash_plans import Plans
from crash_tracer import FILES, place
from crash_trials import DIFFERENT, EQUAL, FAILED, HUNG, LEFT, Outcome, Trial, quiet

from unisono.errors import UnisonoError, unknown_name
from unisono.resources import usable_cores
from unisono.supervise.children import die_with_parent

PROGRESS = 100
"""Points between two words about progress."""


@final
class Tally:
    """What came of the trials."""

    def __init__(self) -> None:
        self.points: Counter[str] = Counter()
        self.by_job: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.missed = self.resumed = 0
        self.hit: set[int] = set()
        self.seen: set[int] = set()

    def see(self, outcome: Outcome) -> None:
        """Lines that ranks and writers execute."""
        self.seen.update(line for (role, _), lines in outcome.after.items() if role != "s" for line in lines)

    def add(self, kind: str, trial: Trial, outcome: Outcome) -> bool:
        """Whether all is well."""
        self.see(outcome)
        struck = outcome.fired == len(trial.faults)
        if struck:
            self.points[kind] += 1
            self.by_job[trial.job] += 1
            self.hit.update(fault.line for fault in trial.faults)
            self.resumed += outcome.starts > 1
        else:
            self.missed += 1
        if struck or outcome.verdict != EQUAL:
            self.verdicts[outcome.verdict] += 1
        return outcome.verdict == EQUAL

    def show(self) -> None:
        self.seen |= self.hit
        print(f"{'job':<24}{'points':>8}")
        for job, number in self.by_job.items():
            print(f"{job:<24}{number:>8}")
        areas = Counter(_area(line) for line in self.seen)
        hits = Counter(_area(line) for line in self.hit)
        told = ", ".join(f"{area} {hits[area]}/{number}" for area, number in sorted(areas.items()))
        print(f"lines of code at which a process was hit / that ranks executed: {told}")
        kinds = ", ".join(f"{self.points[kind]} x {kind}" for kind in KINDS if self.points[kind])
        print(f"{self.points.total()} points ({kinds}); {self.resumed} resumed; {self.missed} runs without a hit")
        print(", ".join(f"{self.verdicts[verdict]} {verdict}" for verdict in (EQUAL, DIFFERENT, FAILED, HUNG, LEFT)))

    def lines(self) -> str:
        """The lines of each file at which a process was hit, and those that ranks executed and were not."""
        found: dict[str, dict[str, list[str]]] = {}
        for line in sorted(self.seen | self.hit):
            file, _, number = place(line).partition(":")
            found.setdefault(file, {"hit": [], "not hit": []})["hit" if line in self.hit else "not hit"].append(number)
        rows = ((file, which, numbers) for file, entry in found.items() for which, numbers in entry.items() if numbers)
        return "".join(f"{file} {which}: {' '.join(numbers)}\n" for file, which, numbers in rows)


def _area(line: int) -> str:
    return place(line).partition("/")[0]


def explore(jobs: Iterable[str], points: int, rng: random.Random, folder: Path, workers: int) -> Tally:
    """So many points of these jobs, 0: all; failures are printed as they are found."""
    totals, began = Tally(), time.monotonic()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, die_with_parent, (os.getpid(),)) as pool:
        names = list(jobs)
        expected: dict[str, Found] = dict(zip(names, pool.map(quiet, names, [folder] * len(names)), strict=True))
        plans = Plans(rng)
        for name, outcome in zip(
            names, pool.map(_run, map(Trial, names), expected.values(), [folder] * len(names)), strict=True
        ):
            totals.see(outcome)
            if outcome.verdict != EQUAL:
                raise UnisonoError(
                    f"{name} on several ranks, though nobody was killed: {outcome.verdict}: {outcome.told}"
                )
            plans.learn("", Trial(name), outcome)
        pending: dict[Future[Outcome], tuple[str, Trial]] = {}
        while True:
            while len(pending) < 2 * workers and (not points or totals.points.total() + len(pending) < points):
                if (drawn := plans.draw()) is None:
                    break
                kind, trial = drawn
                pending[pool.submit(_run, trial, expected[trial.job], folder)] = drawn
            if not pending:
                return totals
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                kind, trial = pending.pop(future)
                outcome = future.result()
                plans.learn(kind, trial, outcome)
                if not totals.add(kind, trial, outcome):
                    _tell(kind, trial, outcome)
                elif not totals.points.total() % PROGRESS and outcome.fired == len(trial.faults):
                    print(f"{totals.points.total()} points in {time.monotonic() - began:.0f} s", flush=True)


def _run(trial: Trial, expected: Found, folder: Path) -> Outcome:
    return trial.run(expected, folder)


def _tell(kind: str, trial: Trial, outcome: Outcome) -> None:
    print(f"{outcome.verdict.upper()} ({kind}): {outcome.told}")
    print(f"    python benchmarks/crash_points.py --only '{trial}'", flush=True)


def preload() -> None:
    """What ranks need, once for all: nothing may be computed with torch here, for processes are forked."""
    import torch

    import unisono.loop.batches
    import unisono.runs.loop_checkpoint.checkpoint  # noqa: F401

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=3000, help="how many; 0: all (default 3000)")
    parser.add_argument("--seed", type=int, default=0, help="decides which points come first (default 0)")
    parser.add_argument("--jobs", default=",".join(JOBS), help=f"some of {','.join(JOBS)} (default: all)")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="runs at once (default: as many as cores)")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="where to write which lines were hit")
    parser.add_argument(
        "--only", action="append", default=[], metavar="POINT", help="this point, as a failure shows it"
    )
    options = parser.parse_args()
    preload()
    files = set(os.listdir("/dev/shm"))
    folder = Path(tempfile.mkdtemp(prefix="unisono-crash-points-"))
    try:
        trials = [Trial.parse(text) for text in options.only]
        names = [trial.job for trial in trials] or options.jobs.split(",")
        for name in names:
            if name not in JOBS:
                raise unknown_name("job", name, JOBS)
        if trials:
            well = all([_repeat(trial, folder) for trial in trials])
        else:
            print(f"{usable_cores()} cores, seed {options.seed}, {len(FILES)} files", flush=True)
            totals = explore(names, options.points, random.Random(options.seed), folder, options.workers)
            print(f"{len(set(os.listdir('/dev/shm')) - files)} new files in /dev/shm, of all programs")
            totals.show()
            well = set(totals.verdicts) == {EQUAL}
            if options.lines is not None:
                options.lines.write_text(totals.lines())
    except UnisonoError as error:
        print(f"crash_points.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if well:
        shutil.rmtree(folder)
    sys.exit(0 if well else 1)


def _repeat(trial: Trial, folder: Path) -> bool:
    outcome = trial.run(quiet(trial.job, folder), folder)
    print(f"{trial}: {outcome.fired} of {len(trial.faults)} faults struck; {outcome.verdict} {outcome.told}")
    return outcome.verdict == EQUAL and outcome.fired == len(trial.faults)


if __name__ == "__main__":
    main()
