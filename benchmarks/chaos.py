"""How much of a run survives random faults: of its bits, all; of its speed, the share that is printed.

    python benchmarks/chaos.py --minutes 4 --seed 1                       # about 240 faults on 4 ranks; 9 minutes
    python benchmarks/chaos.py --minutes 4 --rounds 1                     # all of them in one run
    python benchmarks/chaos.py --minutes 1 --set engine=torch             # the same with a torch model
    python benchmarks/chaos.py --resume-kills 200                         # the whole group killed, then resumed
    python benchmarks/chaos.py --minutes 0.1 --rounds 1 --per-second 5    # a smoke run

Quiet runs and tormented ones of the same recipe take turns. Faults are kill -9, SIGSTOP for up to 0.2 s, and deaths of
replacements while they join (`torment.py`). Printed are the faults, how many rounds had to be done again, how long the
survivors took to re-form, the speed kept, whether the weights are equal to the last bit, and what was left behind. With
--resume-kills the whole process group is killed at random times, while a snapshot is written too, and the run is
resumed on another number of ranks (`relay.py`).

Limits: whatever else runs on the machine disturbs one run more than the next; how many cores others used is printed,
and above a tenth of one the speed says little. The faults of one seed are the same in every call, the moments at which
they strike are not.
"""

import argparse
import json
import math
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, final

import psutil
from bystanders import Bystanders
from relay import FAST, relay
from torment import Habits, Run, torment

from unisono.errors import UnisonoError, UserError
from unisono.recipe import Recipe
from unisono.recipe.reading import from_values
from unisono.resources import usable_cores
from unisono.runs.lifecycle import run_recipe

JOB: dict[str, Any] = {
    "model": "mlp:128,64",
    "activation": "sigmoid",
    "data": "synthetic:classes=10,rows=20000,features=784,test_rows=1000",
    "optimizer": "momentum",
    "lr": 0.1,
    "batch_size": 512,
    "ranks": 4,
    "max_restarts": 1_000_000,
}
"""The R2 job's network on made-up rows."""
KEPT, REFORMING_MS = 0.95, 50.0
"""Aims: the share of the speed at one fault a second, and re-forming (99 of 100)."""


@final
@dataclass(frozen=True)
class Turns:
    """How long runs of a kind take together, about, and how many there are."""

    minutes: float
    rounds: int


@final
@dataclass(frozen=True)
class Outcome:
    """What a run left in its directory."""

    summary: dict[str, Any]
    rates: list[float]
    """Samples per second of each epoch but the first."""
    events: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> "Outcome":
        epochs = _lines(path / "metrics.jsonl")
        rates = [epoch["samples_per_s"] for epoch in epochs[1:]]
        return cls(json.loads((path / "summary.json").read_text()), rates, _lines(path / "events.jsonl"))


def chaos(recipe: Recipe, turns: Turns, rng: random.Random, habits: Habits, folder: Path) -> bool:
    """Quiet runs and tormented ones in turn, and what became of them; whether all is well."""
    first = _run(recipe.with_options(epochs=20), folder / "first")[0]
    samples = first.summary["samples"] / 20
    epochs = max(3, math.ceil(60 * turns.minutes * median(first.rates) / samples / turns.rounds))
    recipe = recipe.with_options(epochs=epochs)
    bystanders, faults, left = Bystanders(), Counter[str](), 0
    pairs = []
    for number in range(turns.rounds):
        quiet, _, _ = _run(recipe, folder / f"quiet-{number}")
        tormentor = partial(torment, rng=rng, habits=habits)
        tormented, struck, leaked = _run(recipe, folder / f"tormented-{number}", tormentor)
        pairs.append((quiet, tormented))
        faults += struck
        left += leaked
    print(
        f"{recipe.model.name} on {recipe.data.name}, {recipe.model.engine} engine, {recipe.ranks.count} ranks, "
        f"{epochs} epochs a run"
    )
    told = ", ".join(f"{number} x {kind}" for kind, number in sorted(faults.items()))
    print(f"{'faults':<24}{faults.total():>8}   ({told}); in {turns.rounds} runs")
    reforming = show_deaths([event for _, run in pairs for event in run.events])
    kept = show_speed(pairs)
    print(f"Others used {bystanders.cores():.2f} cores meanwhile.")
    hashes = {run.summary["weights_sha256"] for pair in pairs for run in pair}
    print(f"{'weights':<24}{'equal' if len(hashes) == 1 else 'NOT EQUAL':>8}   ({min(hashes)[:16]}...)")
    print(f"{'left behind':<24}{left:>8}   processes (and with them the arena, which has no name)")
    return len(hashes) == 1 and not left and kept and reforming


def show_deaths(events: list[dict[str, Any]]) -> bool:
    """How much was done again, and how long it took from the news of a death until the survivors went on."""
    deaths = [event for event in events if event["kind"] == "death"]
    joining = sum(event["kind"] == "newcomer" for event in events)
    whole = sum(event["reached"] == "commit" for event in deaths)
    print(f"{'deaths':<24}{len(deaths) + joining:>8}   ({joining} of them of replacements that had not joined yet)")
    print(f"{'steps redone':<24}{whole:>8}   at most (and {len(deaths) - whole} times only the update)")
    if len(deaths) < 2:
        return True
    cuts = quantiles([1000 * event["s"] for event in deaths], n=100, method="inclusive")
    print(f"{'re-forming, ms':<24}{cuts[49]:>8.2f}   p50; p99 {cuts[98]:.2f} (aim: <= {REFORMING_MS:g})")
    return cuts[98] <= REFORMING_MS


def show_speed(pairs: list[tuple[Outcome, Outcome]]) -> bool:
    """Medians over the rounds; the ratio is that of neighbours."""
    for name, runs in zip(("quiet", "tormented"), zip(*pairs, strict=True), strict=True):
        rates = sorted(run.summary["samples_per_s"] for run in runs)
        print(f"{name:<24}{median(rates):>8,.0f}   samples/s ({rates[0]:,.0f} - {rates[-1]:,.0f})")
    ratios = sorted(tormented.summary["samples_per_s"] / quiet.summary["samples_per_s"] for quiet, tormented in pairs)
    spread = f"{100 * ratios[0]:.1f} - {100 * ratios[-1]:.1f}"
    print(f"{'speed kept, %':<24}{100 * median(ratios):>8.1f}   ({spread}; aim at a fault a second: >= {100 * KEPT:g})")
    return median(ratios) >= KEPT


def resume_kills(kills: int, rng: random.Random, folder: Path) -> bool:
    """The relay, and what came of it."""
    found = relay(folder, FAST, rng, kills)
    print(f"{found.kills} kills of the whole group, {found.drafts} of them while a snapshot was being written;")
    print(f"{found.resumes} resumed on another number of ranks, {found.finished} times to the end: ", end="")
    print(f"{len(found.wrong)} wrong" if found.wrong else "always the weights of the quiet run")
    print("\n".join(found.wrong), end="\n" if found.wrong else "")
    return not found.wrong


def _run(recipe: Recipe, path: Path, tormentor: Any = None) -> tuple[Outcome, Counter[str], int]:
    """One run to its end: what it found, the faults, how many processes it left."""
    faults: Counter[str] = Counter()
    with Run(partial(run_recipe, recipe.with_options(out=str(path))), path.with_suffix(".log")) as run:
        if tormentor is not None:
            faults = tormentor(run)
        while run.running(60.0):
            pass
        if run.code():
            raise UnisonoError(f"the run ended with exit code {run.code()}:\n{path.with_suffix('.log').read_text()}")
        left = sum(_group(pid) == run.pid for pid in psutil.pids())
    return Outcome.read(path), faults, left


def _group(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return 0


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _recipe(settings: list[str]) -> Recipe:
    values = dict(JOB)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}", hint="give an option of a recipe: --set model=mlp:64")
        try:
            values[name.replace("-", "_")] = json.loads(text)
        except json.JSONDecodeError:
            values[name.replace("-", "_")] = text
    return from_values(values, "--set")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="of tormented training, about (default 1)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs, which take turns (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="decides the faults (default 0)")
    parser.add_argument("--per-second", type=float, default=1.0, help="faults (default 1)")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="of the recipe")
    parser.add_argument("--resume-kills", type=int, default=0, metavar="N", help="kill the whole group N times instead")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"{usable_cores()} cores; seed {options.seed}, {options.per_second:g} faults a second", flush=True)
    try:
        recipe = _recipe(options.set)
        with tempfile.TemporaryDirectory(prefix="unisono-chaos-") as folder:
            if options.resume_kills:
                well = resume_kills(options.resume_kills, rng, Path(folder))
            else:
                turns = Turns(options.minutes, options.rounds)
                well = chaos(recipe, turns, rng, Habits(options.per_second), Path(folder))
    except UnisonoError as error:
        print(f"chaos.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
