"""Two checkouts of unisono, in turns: does a change of the code change speed, take-over or bits?

    git worktree add ../older COMMIT
    python benchmarks/checkouts.py --old ../older                     # about 12 minutes
    python benchmarks/checkouts.py --old ../older --jobs r4 --rounds 9
    python benchmarks/checkouts.py --old ../older --jobs chaos --minutes 2

Each job is a `unisono train` of both trees, one after the other, in changing order; a ratio is the median over the
rounds of new / old. `chaos` runs `benchmarks/chaos.py` of each tree with the same faults. The exit code is 1 if the
weights differ. A timing is never judged here: whoever reads compares it with the spread.

Limits: both trees run with this Python and its packages. Whatever else runs on the machine hurts; it is printed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bystanders import Bystanders

R4 = "--data synthetic:classes=20,rows=50000,features=512,test_rows=0 --model bn-mlp:32 --optimizer adam --lr 0.001"
JOBS = {
    "r4": f"{R4} --batch-size 64 --shards 2 --ranks 2 --epochs 12",
    "r4-1-rank": f"{R4} --batch-size 64 --shards 2 --ranks 1 --epochs 8",
    "digits": "--epochs 300 --ranks 2",
    "odd": "--data synthetic:classes=3,rows=5000,features=13,test_rows=0 --model mlp:64,32 --batch-size 24 --ranks 2 "
    "--epochs 25",
    "torch-r4": f"{R4} --batch-size 64 --shards 2 --ranks 2 --epochs 3 --engine torch",
    "local": f"{R4} --batch-size 64 --shards 2 --ranks 2 --epochs 8 --strategy local",
}  # fmt: skip
"""Options of `unisono train`, for a few seconds each."""
LIMIT_S = 300.0


def train(tree: Path, options: str, folder: Path) -> dict[str, Any]:
    """The summary of one run of a tree."""
    words = [sys.executable, "-m", "unisono", "train", *options.split(), "--out", str(folder)]
    started = subprocess.run(
        words, env=environment(tree), cwd=folder.parent, timeout=LIMIT_S, capture_output=True, text=True, check=False
    )
    if started.returncode:
        sys.exit(f"{tree}: {' '.join(words)} ended with {started.returncode}\n{started.stdout}{started.stderr}")
    return dict(json.loads((folder / "summary.json").read_text()))


def environment(tree: Path) -> dict[str, str]:
    # An older tree has no backend for torch to load by itself.
    more = {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return os.environ | more | {"PYTHONPATH": str(tree / "src")}


def compare(name: str, trees: list[Path], rounds: int) -> bool:
    """Prints the line of a job; whether the bits are equal."""
    bystanders = Bystanders()
    rates: list[list[float]] = [[], []]
    hashes = set()
    with tempfile.TemporaryDirectory(prefix="unisono-checkouts-") as folder:
        for turn in range(rounds):
            for which in (0, 1) if turn % 2 else (1, 0):
                summary = train(trees[which], JOBS[name], Path(folder) / f"{name}-{turn}-{which}")
                rates[which].append(summary["samples_per_s"])
                hashes.add(summary["weights_sha256"])
    ratios = sorted(new / old for old, new in zip(*rates, strict=True))
    print(
        f"{name:<12}{median(rates[0]):>12,.0f}{median(rates[1]):>12,.0f}{median(ratios):>9.3f}   "
        f"({ratios[0]:.2f} - {ratios[-1]:.2f})   {'equal bits' if len(hashes) == 1 else 'BITS DIFFER'}   "
        f"others used {bystanders.cores():.2f} cores",
        flush=True,
    )
    return len(hashes) == 1


def chaos(trees: list[Path], rounds: int, minutes: float) -> bool:
    """Prints what each tree keeps of its speed under the same faults."""
    found: list[dict[str, list[str]]] = [{}, {}]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            words = ["benchmarks/chaos.py", "--minutes", str(minutes), "--rounds", "1", "--seed", str(turn)]
            ran = subprocess.run(
                [sys.executable, *words], cwd=trees[which], env=environment(trees[which]), capture_output=True,
                text=True, check=False, timeout=600 + 240 * minutes,
            )  # fmt: skip
            for what in ("faults", "deaths", "re-forming, ms", "quiet", "tormented", "speed kept, %", "weights"):
                line = re.search(rf"^{re.escape(what)}\s+([^ ]+)", ran.stdout, re.M)
                found[which].setdefault(what, []).append(line.group(1) if line else "?")
    for what, values in found[0].items():
        print(f"chaos, {what:<16} old {' '.join(values):<40} new {' '.join(found[1][what])}", flush=True)
    return all(values == "equal" for each in found for values in each["weights"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="the other checkout")
    parser.add_argument("--jobs", default=",".join([*JOBS, "chaos"]), help=f"of {', '.join(JOBS)}, chaos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=0.5, help="of faults in each run of chaos (default 0.5)")
    options = parser.parse_args()
    names = options.jobs.split(",")
    if unknown := set(names) - {*JOBS, "chaos"}:
        parser.error(f"no job {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}, chaos")
    trees = [options.old.resolve(), Path(__file__).resolve().parents[1]]
    if not (trees[0] / "src/unisono").is_dir():
        parser.error(f"{options.old} is no checkout of unisono")
    print(f"{'job':<12}{'old':>12}{'new':>12}{'ratio':>9}   samples/s, {options.rounds} rounds", flush=True)
    well = [compare(name, trees, options.rounds) for name in names if name != "chaos"]
    if "chaos" in names:
        well.append(chaos(trees, max(1, options.rounds // 2), options.minutes))
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
