"""What staleness does to asynchronous training, and what the rules do about it: accuracy, updates, time.

    python benchmarks/staleness.py accuracy --minutes 3 --out staleness.csv    # adds cells to the file until time is up
    python benchmarks/staleness.py accuracy --order free --seeds 1             # as ranks come, not in turn
    python benchmarks/staleness.py accuracy --quick                            # a smoke run on made-up digits
    python benchmarks/staleness.py throughput                # against a parameter server in mpi4py, interleaved
    python benchmarks/staleness.py masters                   # updates/s and busy share for masters x ranks
    python benchmarks/staleness.py compare                   # regular, sync and async side by side, epoch by epoch
    python benchmarks/staleness.py straggler                 # one worker four times slower: time to 95 %

`accuracy`: sigmoid mlp:128,64 on MNIST, plain SGD, round-robin order (or --order free) over masters x ranks, learning
rates, batches and seeds; beside it `sync` with a batch of workers x batch and the same learning rate. The table says
where `safe` or `softsync` is more than a point below a `sync` that reaches 90 %, and where `plain` collapses. A cell in
the file is not run again, so a long table can be made in pieces. --plot FILE draws accuracy against staleness. What
comes in turn is computed in one process, with the same bits (`in_turn.py`); every `--check`-th cell is run by real
ranks, too, and the weights compared.

Limits: MNIST is looked for in ../shared/data/mnist, seen from the repository, or --data-dir. `throughput`, `masters`
and `straggler` need idle cores; how many others used is printed.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any, final

import numpy as np
from bystanders import Bystanders
from contenders import Contender, take_turns
from in_turn import train_in_turn
from ours import Ours
from standings import Aim, judge, show_rates

from unisono.data.dataset import Dataset
from unisono.environment.os_environ import mpi_environment
from unisono.errors import UnisonoError
from unisono.launch.launcher_commands import mpirun
from unisono.messages.rank_reports import EpochRecord, Report
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.training.job import load_data, prepare

MNIST = Path(__file__).parents[2] / "shared" / "data" / "mnist"
RULES = ("safe", "softsync", "plain")
FIELDS = ("order", "masters", "ranks", "batch", "lr", "seed", "rule", "accuracy", "staleness", "seconds")
SYNC = "sync"
LEARNT, POINT, COLLAPSED = 0.90, 0.01, 0.15


@final
@dataclass(frozen=True)
class Cell:
    """One run of the table; rule `sync`: one global batch of as many samples as all workers push."""

    order: str
    masters: int
    ranks: int
    batch: int
    lr: float
    seed: int
    rule: str

    @property
    def workers(self) -> int:
        return self.ranks - self.masters

    @property
    def in_turn(self) -> bool:
        """Whether it can be computed in one process, with the same bits."""
        return self.rule != SYNC and self.order == "round-robin"

    def recipe(self, base: Recipe) -> Recipe:
        common = base.with_options(lr=self.lr, seed=self.seed, optimizer="sgd")
        if self.rule == SYNC:
            return common.with_options(ranks=1, shards=1, batch_size=self.batch * self.workers)
        return common.with_options(
            strategy="async", masters=self.masters, ranks=self.ranks, batch_size=self.batch, order=self.order,
            staleness_rule=self.rule,
        )  # fmt: skip


def run(recipe: Recipe, dataset: Dataset) -> tuple[dict[str, Any], list[EpochRecord]]:
    """What a run found, and the records of its epochs."""
    records: list[EpochRecord] = []

    def hear(rank: int, value: Report) -> None:
        if isinstance(value, EpochRecord):
            records.append(value)

    outcome = SupervisedRun(prepare(recipe, dataset), RunPlaces()).train(hear)
    return next(found for found in outcome.results.values() if found), records


# --- accuracy --------------------------------------------------------------------------------------------------------


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """All of them, those that tell most first; sync once for each number of samples."""
    seen = set()
    for seed in range(options.seeds):
        for batch in map(int, options.batches.split(",")):
            for lr in sorted(map(float, options.lrs.split(",")), reverse=True):
                for masters, ranks in layouts(options.layouts):
                    for rule in (SYNC, *options.rules.split(",")):
                        cell = Cell(options.order, masters, ranks, batch, lr, seed, rule)
                        key = (cell.recipe(Recipe()), rule)
                        if key not in seen:
                            seen.add(key)
                            yield cell


def layouts(text: str) -> list[tuple[int, int]]:
    return [(int(masters), int(ranks)) for masters, ranks in (entry.split("x") for entry in text.split(","))]


def fill(options: argparse.Namespace, base: Recipe, dataset: Dataset) -> list[dict[str, Any]]:
    """Runs what is not in the file yet, until time is up; all rows."""
    path, deadline = Path(options.out), time.monotonic() + 60 * options.minutes
    rows = _read(path) if path.exists() else []
    done = {_key(row) for row in rows}
    for cell in cells(options):
        known = {name: str(getattr(cell, name)) for name in FIELDS[:7]}
        if _key(known) in done:
            continue
        if time.monotonic() > deadline:
            print(f"Time is up; go on with the same command. {len(rows)} cells are in {path}.")
            break
        begun = time.perf_counter()
        checked = bool(options.check) and cell.in_turn and len(rows) % options.check == 0
        accuracy, stale = _score(cell, base, dataset, checked=checked)
        seconds = time.perf_counter() - begun
        row = known | {"accuracy": accuracy, "staleness": round(stale, 3), "seconds": round(seconds, 2)}
        with open(path, "a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if not rows:
                writer.writeheader()
            writer.writerow(row)
        rows.append(row)
        told = ", the same weights with real ranks" if checked else ""
        print(f"{cell}: {accuracy:.4f}, staleness {stale:.1f}, {seconds:.1f} s{told}", flush=True)
    return rows


def _score(cell: Cell, base: Recipe, dataset: Dataset, *, checked: bool) -> tuple[float, float]:
    """Test accuracy and mean staleness; checked: with real ranks as well."""
    recipe, alone = cell.recipe(base), None
    if cell.in_turn:
        alone = train_in_turn(prepare(recipe, dataset))
        if not checked:
            return alone.accuracy, alone.staleness
    found, records = run(recipe, dataset)
    if alone is not None and alone.weights_sha256 != found["weights_sha256"]:
        raise UnisonoError(
            f"{cell}: other weights with ranks ({found['weights_sha256']}) than in one process ({alone})"
        )
    return found["test_accuracy"], mean(record.metrics.get("staleness_mean", 0.0) for record in records)


def _read(path: Path) -> list[dict[str, Any]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    """Sync does not depend on masters and ranks, but on the samples of a step of all workers."""
    layout = (row["order"], row["masters"], row["ranks"], row["batch"])
    if row["rule"] == SYNC:
        layout = ("", "", "", str((int(row["ranks"]) - int(row["masters"])) * int(row["batch"])))
    return (*layout, str(float(row["lr"])), row["seed"], row["rule"])


def show(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Accuracies in percent, means over the seeds; what broke the promise is marked."""
    found = {_key(row): float(row["accuracy"]) for row in rows}
    rules = options.rules.split(",")
    print(f"\norder {options.order}\n{'masters x ranks':>15} {'N':>3} {'batch':>5} {'lr':>6} {SYNC:>7}", end="")
    print("".join(f" {rule:>10}" for rule in rules))
    broken = collapsed = compared = lost = 0
    for masters, ranks in layouts(options.layouts):
        for batch in options.batches.split(","):
            for lr in options.lrs.split(","):
                line, scores, by_seed = "", {}, {}
                for rule in (SYNC, *rules):
                    keys = [
                        _key({"order": options.order, "masters": str(masters), "ranks": str(ranks), "batch": batch,
                              "lr": lr, "seed": str(seed), "rule": rule})
                        for seed in range(options.seeds)
                    ]  # fmt: skip
                    scores[rule] = [found[key] for key in keys if key in found]
                    by_seed[rule] = {seed: found[key] for seed, key in enumerate(keys) if key in found}
                if not scores[SYNC] or not any(scores[rule] for rule in rules):
                    continue
                for rule in rules:
                    pairs = [(one, by_seed[SYNC][seed]) for seed, one in by_seed[rule].items() if seed in by_seed[SYNC]]
                    below = any(sync >= LEARNT and one < sync - POINT for one, sync in pairs) and rule != "plain"
                    fell = any(one < COLLAPSED for one, _ in pairs)
                    compared += rule != "plain" and bool(pairs)
                    broken += below
                    collapsed += fell and rule == "plain"
                    lost += fell and rule != "plain"
                    mark = "!" if below or (fell and rule != "plain") else "*" if fell else " "
                    line += f" {100 * mean(scores[rule]):>9.2f}{mark}" if pairs else f" {'-':>9} "
                layout = f"{masters}x{ranks}"
                print(f"{layout:>15} {ranks - masters:>3} {batch:>5} {lr:>6} {100 * mean(scores[SYNC]):>7.2f}{line}")
    print(f"{broken} of {compared} cells of safe and softsync are more than a point below a sync of 90 % (!);")
    print(f"plain collapsed (*) in {collapsed} cells, the others in {lost}, whatever sync did there.")


def plot(rows: Sequence[dict[str, Any]], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for rule in RULES:
        mine = [row for row in rows if row["rule"] == rule]
        size = [12 + 25 * float(row["lr"]) for row in mine]
        points = [float(row["staleness"]) for row in mine], [100 * float(row["accuracy"]) for row in mine]
        axes.scatter(*points, s=size, alpha=0.6, label=rule)
    axes.set(xlabel="mean staleness (updates)", ylabel="test accuracy (%)", title="size: learning rate")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


# --- speed -----------------------------------------------------------------------------------------------------------


@final
class Rendition(Contender):
    """`parameter_server.py` under mpirun."""

    def __init__(self, rows: Path, masters: int, ranks: int, batch: int, way: str) -> None:
        self.name = f"mpi4py parameter server, {way}"
        arguments = [str(rows), str(masters), str(batch), "1", way]
        script = str(Path(__file__).parent / "parameter_server.py")
        self._command = mpirun(ranks, [sys.executable, script, *arguments])

    def turn(self, seconds: float) -> float:
        ended = subprocess.run(
            self._command, env=mpi_environment(), capture_output=True, text=True, timeout=300, check=True
        )
        return float(json.loads(ended.stdout.splitlines()[-1])["samples_per_s"])


def throughput(options: argparse.Namespace, base: Recipe, dataset: Dataset) -> None:
    """1 master and 2 workers, batch 16, against the rendition, in turns."""
    untested = replace(dataset, test_x=dataset.test_x[:0], test_y=dataset.test_y[:0])
    recipe = base.with_options(strategy="async", ranks=3, masters=1, batch_size=16, lr=0.5, optimizer="sgd", epochs=2)
    since = Bystanders()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(rows, x=dataset.train_x, y=dataset.train_y)
        ours = Ours("unisono async, shared memory", prepare(recipe, untested))
        asking, tight = (Rendition(rows, 1, 3, 16, way) for way in ("ask", "tight"))
        rates = take_turns([ours, asking, tight], options.rounds, 1.0)
    show_rates(rates, {}, [])
    judge(rates, Aim(ours.name, asking.name, 1.8), Aim(ours.name, tight.name))
    print(f"others used {since.cores():.2f} cores")


def masters_table(options: argparse.Namespace, base: Recipe, dataset: Dataset) -> None:
    """Updates/s, how busy the masters are, how long workers wait."""
    since = Bystanders()
    print(f"{'masters x ranks':>15} {'updates/s':>10} {'busy':>22} {'wait after a push, by master':>40}")
    for masters in (1, 2, 4):
        for ranks in (4, 8, 16):
            if masters >= ranks:
                continue
            recipe = base.with_options(
                strategy="async", ranks=ranks, masters=masters, batch_size=16, lr=0.5, optimizer="sgd", epochs=1
            )
            _, (record,) = run(recipe, dataset)
            metrics, pushes = record.metrics, sum(row["pushes"] for row in record.ranks)
            busy = [f"{100 * row['busy_s'] / metrics['epoch_s']:.0f} %" for row in record.ranks[:masters]]
            waits = [sum(row[f"wait_master_{m}_s"] for row in record.ranks) / pushes for m in range(masters)]
            told = ", ".join(f"{1e6 * wait:,.0f} us" for wait in waits)
            rate = metrics["updates"] / metrics["epoch_s"]
            print(f"{f'{masters}x{ranks}':>15} {rate:>10,.0f} {', '.join(busy):>22} {told:>40}", flush=True)
    print(f"others used {since.cores():.2f} cores")


def compare(options: argparse.Namespace, base: Recipe, dataset: Dataset) -> None:
    """R2's table: per-epoch accuracy, time and test accuracy for one process, sync and async on the same ranks."""
    print(f"{'':<26} {'accuracy after each epoch (%)':<42} {'test (%)':>8} {'train s':>8}")
    for masters, ranks in layouts(options.layouts):
        regular = base.with_options(ranks=1, shards=1, batch_size=16, optimizer="sgd", lr=0.5)
        rows = {
            "regular, 1 process": regular,
            f"sync, {ranks} ranks": regular.with_options(ranks=ranks, shards=ranks, batch_size=16 * ranks),
            f"async, {masters}x{ranks}": regular.with_options(strategy="async", ranks=ranks, masters=masters, shards=0),
        }
        for name, recipe in rows.items():
            found, records = run(recipe, dataset)
            epochs = " ".join(f"{100 * record['metrics']['test_accuracy']:7.2f}" for record in records)
            seconds = sum(record.metrics["epoch_s"] for record in records)
            print(f"{name:<26} {epochs:<42} {100 * found['test_accuracy']:>8.2f} {seconds:>8.2f}", flush=True)


def straggler(options: argparse.Namespace, base: Recipe, dataset: Dataset) -> None:
    """The last of four ranks computes four times as long: when does each strategy reach 95 %?"""
    since, times = Bystanders(), {}
    common = base.with_options(
        slow="3:4", epochs=30, target_accuracy=0.95, patience=1, optimizer="sgd", lr=0.5, ranks=4
    )
    rows = {
        "sync, 4 ranks": common.with_options(shards=4, batch_size=48),
        "async, 1x4": common.with_options(strategy="async", masters=1, batch_size=16, deal="dynamic"),
    }
    for _ in range(options.rounds):  # in turn, so that a busy machine is busy for both
        for name, recipe in rows.items():
            found, records = run(recipe, dataset)
            times.setdefault(name, []).append(sum(record.metrics["epoch_s"] for record in records))
            reached = found["stopped_early"] or "not reached"
            print(f"{name:<16} {times[name][-1]:8.2f} s of training, {found['epochs']} epochs: {reached}", flush=True)
    ratios = sorted(one / other for one, other in zip(times["async, 1x4"], times["sync, 4 ranks"], strict=True))
    middle = median(ratios)
    aim = f"aim <= 0.6: {'yes' if middle <= 0.6 else 'no'}"
    print(f"async / sync: {middle:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds ({aim})")
    print(f"others used {since.cores():.2f} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "throughput", "masters", "compare", "straggler"))
    parser.add_argument("--layouts", default="2x4,2x8,4x8,4x16", help="masters x ranks")
    parser.add_argument("--batches", default="16,32", help="samples of one push")
    parser.add_argument("--lrs", default="0.1,0.3,1,3")
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--order", default="round-robin", help="round-robin or free")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--check", type=int, default=8, help="run every so many cells with real ranks, too; 0: none")
    parser.add_argument("--out", default="staleness.csv")
    parser.add_argument("--plot", default="")
    parser.add_argument("--data-dir", default=str(MNIST))
    parser.add_argument("--quick", action="store_true", help="digits, two epochs, one seed")
    options = parser.parse_args()
    base = Recipe.from_options(
        model="mlp:128,64", activation="sigmoid", data="mnist", data_dir=options.data_dir, epochs=options.epochs
    )
    if options.quick:
        base = base.with_options(data="digits", data_dir="", epochs=2)
        options.seeds, options.batches, options.layouts = 1, "16", "1x3,2x6"
    dataset = load_data(base)
    if options.what == "accuracy":
        rows = fill(options, base, dataset)
        show(rows, options)
        if options.plot:
            plot(rows, options.plot)
        return
    doing = {"throughput": throughput, "masters": masters_table, "compare": compare, "straggler": straggler}
    doing[options.what](options, base, dataset)


if __name__ == "__main__":
    main()
