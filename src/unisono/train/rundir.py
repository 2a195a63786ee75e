"""The run directory: what a run leaves behind, written as it goes on. A contract: reports and outside tools read it.

recipe.toml (resolved) · metrics.jsonl (a line an epoch) · ranks.csv (a line per epoch and rank: times, and of the
epoch's last step what the rank contributed to each parameter) · sync_time.csv · contributions.csv · loss.png ·
summary.json · weights.safetensors. Units are in names; every number is global unless its name says rank.

    directory = RunDirectory.make("runs/mine", recipe); directory.add(record, names); directory.finish(summary)

Only the process that started the ranks writes here, except for the weights.
"""

import csv
import json
import time
from pathlib import Path
from typing import Any, final

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.base import TIMES
from unisono.strategies.contributions import FIELDS


@final
class RunDirectory:
    """A directory that did not exist before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights = path / "weights.safetensors"

    @classmethod
    def make(cls, out: str, recipe: Recipe) -> "RunDirectory":
        """`out`, or a new directory under runs/; never one that holds something."""
        path = Path(out).expanduser() if out else _fresh(recipe)
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UserError(f"--out {path} exists and is not empty", hint="give another directory, or remove it")
            path.mkdir(parents=True, exist_ok=True)
            recipe.save(path / "recipe.toml")
        except OSError as error:
            raise UserError(f"--out {path}: {error.strerror}", hint="give a directory that you may write to") from None
        return cls(path)

    def add(self, record: dict[str, Any], parameters: list[str]) -> None:
        """One epoch: its metrics; for each rank its times and, for each parameter, what it contributed."""
        epoch = record["metrics"]["epoch"]
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(record["metrics"]) + "\n")
        header = ["epoch", "rank", *TIMES, *(f"{field}:{name}" for name in parameters for field in FIELDS)]
        for rank, (times, shares) in enumerate(zip(record["ranks"], record["shares"], strict=True)):
            _append(self.path / "ranks.csv", header, [epoch, rank, *times, *(x for row in shares for x in row)])
        sync_s = sum(row[TIMES.index("wait_s")] + row[TIMES.index("update_s")] for row in record["ranks"])
        _append(
            self.path / "sync_time.csv", ["Epoch", " Sync Time (s)"], [epoch, f" {sync_s / len(record['ranks']):.6f}"]
        )
        with open(self.path / "contributions.csv", "a") as file:
            for rank, shares in enumerate(record["shares"]):
                told = [
                    f"{name} Contribution = {100 * row[0]:.2f}%" for name, row in zip(parameters, shares, strict=True)
                ]
                file.write(", ".join([f"Epoch {epoch}", f"Process {rank}", *told]) + "\n")

    def finish(self, summary: dict[str, Any]) -> None:
        """The outcome, whole or not at all."""
        draft = self.path / "summary.json.part"
        draft.write_text(json.dumps(summary, indent=1) + "\n")
        draft.rename(self.path / "summary.json")


def _append(path: Path, header: list[str], row: list[Any]) -> None:
    new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(header)
        writer.writerow(row)


def _fresh(recipe: Recipe) -> Path:
    name = (
        f"{time.strftime('%Y%m%d-%H%M%S')}-{recipe.model.partition(':')[0]}-{Path(recipe.data.partition(':')[0]).stem}"
    )
    path = Path("runs") / name
    number = 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path
