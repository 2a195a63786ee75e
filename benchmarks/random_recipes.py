"""Random recipes: each ends with one hash and the same records on any ranks, on two machines, after a death, resumed.

    python benchmarks/random_recipes.py --torch 500 --numpy 500            # a new seed each time, which is printed
    python benchmarks/random_recipes.py --seed 7 --only torch-12           # one of them again
    python benchmarks/random_recipes.py --torch 20 --keep /tmp/draws       # what the runs wrote is kept there

Draws are made by `recipe_draws.py` and run by `recipe_ways.py`, --jobs of them at a time. A recipe that unisono
refuses, or whose loss becomes infinite, is drawn again and not counted; how many there were is printed for each reason.
The exit code is 0 if all that were counted ended equal.

Limits: the draws of a seed are the same in every call of one version of this file; how ranks interleave is not. One
processor, and the libraries that are installed here: others may compute other bits.
"""

import argparse
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import final

from recipe_draws import ENGINES, draw_recipe
from recipe_ways import DEATH, DIVERGED, EQUAL, FINDINGS, MACHINES, MISSED, RANKS, REFUSED, RESUME, Result, carry_out

from unisono.resources import usable_cores

MOST_REDRAWN = 20
"""Draws that may be refused for each that is wanted, before the tool is taken to be broken."""


@final
@dataclass
class Tally:
    """What became of the draws of one engine."""

    engine: str
    wanted: int
    verdicts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def counted(self) -> int:
        return self.verdicts.total() - self.verdicts[REFUSED] - self.verdicts[DIVERGED]

    def add(self, result: Result) -> None:
        self.verdicts[result.verdict] += 1
        if result.verdict in (REFUSED, DIVERGED):
            self.reasons[reason_of(result.text)] += 1
        else:
            self.kinds += result.kinds

    def __str__(self) -> str:
        different = ", ".join(f"{self.verdicts[verdict]} {verdict}" for verdict in FINDINGS)
        kinds = ", ".join(f"{self.kinds[kind]} {name}" for kind, name in NAMES.items())
        drawn_again = self.verdicts[REFUSED] + self.verdicts[DIVERGED]
        return (
            f"{self.engine}: {self.counted} recipes: {self.verdicts[EQUAL]} equal, {different}; {kinds}; "
            f"{drawn_again} drawn again"
        )


NAMES = {
    RANKS: "quiet runs", MACHINES: "on two machines", DEATH: "deaths taken over", RESUME: "resumes",
    MISSED: "ended before what was to happen",
}  # fmt: skip


def reason_of(text: str) -> str:
    """A refusal without what differs from one to the next: numbers, names and paths."""
    return re.sub(r"\S*/\S*|'[^']*'|\d[\d.,]*", "#", text.splitlines()[0] if text else "no reason")[:110]


def try_draw(seed: int, engine: str, number: int, folder: Path, keep: bool) -> Result:
    """In a worker: one draw, from the recipe to the verdict."""
    place = folder / f"{engine}-{number}"
    place.mkdir()
    draw = draw_recipe(seed, engine, number, place)
    result = carry_out(draw, place)
    if result.verdict in FINDINGS:
        again = f"python benchmarks/random_recipes.py --seed {seed} --only {draw.name}"
        result.text = f"{result.verdict}: {draw.name}: {draw}\n{result.text}\n  again: {again}"
    if not keep:
        shutil.rmtree(place)
    return result


def results_of(seed: int, tallies: dict[str, Tally], jobs: int, folder: Path, keep: bool) -> Iterator[Result]:
    """Of as many draws as are wanted and not refused, as they come."""
    numbers = dict.fromkeys(tallies, 0)
    running: dict[Future[Result], str] = {}
    with ExitStack() as stack:
        # Ctrl-C reaches the workers, too: this process alone decides what it means.
        pool = ProcessPoolExecutor(jobs, get_context("fork"), signal.signal, (signal.SIGINT, signal.SIG_IGN))
        stack.callback(pool.shutdown, cancel_futures=True)
        while True:
            while len(running) < 2 * jobs:
                under_way = Counter(running.values())
                shares = {
                    engine: (totals.counted + under_way[engine]) / totals.wanted for engine, totals in tallies.items()
                }
                engine = min(shares, key=shares.__getitem__)
                if shares[engine] >= 1:
                    break
                running[pool.submit(try_draw, seed, engine, numbers[engine], folder, keep)] = engine
                numbers[engine] += 1
            if not running or any(numbers[engine] > MOST_REDRAWN * (1 + tallies[engine].wanted) for engine in tallies):
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                engine = running.pop(future)
                tallies[engine].add(future.result())
                yield future.result()


def show(tallies: dict[str, Tally], seed: int, took_s: float) -> bool:
    """The last lines; whether all is well."""
    for totals in tallies.values():
        for reason, count in totals.reasons.most_common():
            print(f"drawn again, {totals.engine}: {count} x {reason}")
    print(f"seed {seed}; {took_s:.0f} s")
    for totals in tallies.values():
        print(totals)
    return all(totals.verdicts[EQUAL] == totals.counted >= totals.wanted for totals in tallies.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for engine in ENGINES:
        parser.add_argument(f"--{engine}", type=int, default=0, metavar="N", help=f"recipes for the {engine} engine")
    parser.add_argument("--seed", type=int, default=-1, help="decides the draws (default: chosen now, and printed)")
    parser.add_argument("--only", default="", metavar="ENGINE-N", help="one draw of that seed")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="draws at a time (default: the cores)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what the runs write")
    options = parser.parse_args()
    only = re.fullmatch(rf"({'|'.join(ENGINES)})-(\d+)", options.only)
    if options.only and not only:
        parser.error(f"--only {options.only}: give an engine and a number, such as torch-12")
    tallies = {engine: Tally(engine, wanted) for engine in ENGINES if (wanted := getattr(options, engine)) > 0}
    if not tallies and not only:
        parser.error("nothing is to be drawn: give --torch N, --numpy N, or --only")
    if options.keep and options.keep.exists():
        parser.error(f"--keep {options.keep} exists")
    seed = options.seed if options.seed >= 0 else secrets.randbelow(2**31)
    print(f"seed {seed}", flush=True)
    import torch  # once for all: every run is forked from here

    torch.set_num_threads(1)  # of a process that forks
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="unisono-recipes-") as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        if only:
            sys.exit(0 if show_one(seed, only[1], int(only[2]), folder) else 1)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):  # then what was found so far is shown
            for result in results_of(seed, tallies, max(1, options.jobs), folder, options.keep is not None):
                if result.verdict in FINDINGS:
                    print(result.text, flush=True)
                elif not (done := sum(totals.counted for totals in tallies.values())) % 100 and result.verdict == EQUAL:
                    print(f"{done} done", file=sys.stderr, flush=True)
        sys.exit(0 if show(tallies, seed, time.monotonic() - begun) else 1)


def show_one(seed: int, engine: str, number: int, folder: Path) -> bool:
    """One draw, with all that there is to say of it; whether it ended equal."""
    draw = draw_recipe(seed, engine, number, folder)
    print(draw)
    for way in draw.ways:
        print(f"  {way}")
    result = carry_out(draw, folder)
    print(f"{result.verdict}; {result.s:.1f} s" + (f"\n{result.text}" if result.text else ""))
    return result.verdict == EQUAL


if __name__ == "__main__":
    main()
