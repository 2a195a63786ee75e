"""Does `unisono tune` find the best setting? What it finds against the best of all settings, measured for longer.

    python benchmarks/tune.py --data-dir path/to/fashion-mnist           # R4 and CNN job
    python benchmarks/tune.py --jobs r4 --seconds 4 --rounds 3

Every setting is measured `--rounds` times for `--seconds`, in turns there and back; of each the best counts, as in
tuning. Prints how long tuning took and the ratio: 1.00 is the best there is, 0.95 what is asked for. Limits: ratios of
a busy machine are of that moment; the number of settings is small on a machine with few cores.
"""

import argparse
import tempfile
import time
from pathlib import Path

from unisono.measure.tune.candidates import candidates_of
from unisono.measure.tune.search import TrialOptions, TuneOptions, run_trial, tune
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.resources import available_bytes, usable_cores
from unisono.study.study import run_order
from unisono.study.study_directory import Records


def job_of(name: str, data_dir: str) -> tuple[Recipe, TuneOptions]:
    """A recipe, and what is tried of it."""
    if name == "r4":
        return load("r4", {}), TuneOptions(shards="ranks")
    cnn = {"model": "cnn:16,32", "data": "fashion-mnist", "data_dir": data_dir, "batch_size": 256, "shards": 8}
    return load("", cnn), TuneOptions()


def measure(name: str, data_dir: str, seconds: float, rounds: int) -> None:
    """One job: tuning first, then everything."""
    recipe, options = job_of(name, data_dir)
    cells, limit = candidates_of(recipe, options, usable_cores()), int(0.8 * available_bytes())
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Records.open(Path(folder) / "tune", "tune", {}) as records:
        outcome = tune(records, cells, TrialOptions(options, limit))
    took_s = time.monotonic() - begun
    speeds: dict[str, list[float]] = {cell.digest: [] for cell in cells}
    for turn in run_order(cells, rounds):
        found = run_trial(turn.cell, seconds, limit)
        if found["status"] == "finished":
            speeds[turn.cell.digest].append(found["samples_per_s"])
    best = {digest: max(found) for digest, found in speeds.items() if found}
    print(f"\n{name}: {len(cells)} settings, tuning took {took_s:.0f} s, {len(outcome.scores)} could be run")
    for cell in cells:
        mark = "*" if cell.digest == outcome.best else " "
        tuned = max(outcome.scores.get(cell.digest, [0.0]))
        print(f" {mark} {cell.name:<34} {best.get(cell.digest, 0.0):>12,.0f} samples/s   in tuning {tuned:>12,.0f}")
    if outcome.best in best:
        print(f"   found / best of all: {best[outcome.best] / max(best.values()):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="r4,cnn")
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for name in given.jobs.split(","):
        measure(name, given.data_dir, given.seconds, given.rounds)


if __name__ == "__main__":
    main()
