"""How far is `unisono predict` from what is measured here? Its error on runs that the model was not made of.

    python benchmarks/predict.py [--mnist DIRECTORY] [--repeat 3]

For each named job the short runs that calibrate the model and those that are held out are carried out in one
interleaved study; the model is fitted to the former, and the steps of the latter are predicted: other batches, other
shards, more ranks (more than cores, on a small machine). The aim is 20 % at most on each. Networks are not measured.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from unisono.measure.prediction.calibration import calibrate, calibration
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.report.studies.background_load import load_line
from unisono.report.studies.predict import AIM, checks
from unisono.study.study import RunOptions, carry_out, run_order
from unisono.study.study_directory import Records
from unisono.training.job import prepare

WIDTH = 110
"""Of tables, in characters."""


def errors_of(name: str, recipe: Recipe, repeat: int) -> list[float]:
    """Shows what was predicted and measured; the errors of what was held out."""
    job = prepare(recipe)
    cells = calibration(recipe, job.plan.samples)
    with tempfile.TemporaryDirectory() as folder, Records.open(Path(folder) / "study", "predict", {}) as records:
        for record in carry_out(records, run_order(cells, repeat), RunOptions(timeout_s=300)):
            if record["reason"]:
                print(f"{record['cell']}: {record['reason']}")
        _, checked = calibrate(cells, records.all, records.path, 4 * sum(job.model().layout.sizes))
    print(f"\n{name}: {recipe.model.name} on {recipe.data.name}")
    Console(width=WIDTH).print(checks(checked).shown(checked, WIDTH))
    if told := load_line(checked, lambda point: str(point["name"])):
        print(told)
    return [abs(point["error"]) for point in checked if point["held_out"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", default="", help="where MNIST is; without it the R2 job is left out")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    jobs = {"R4 job": load("r4", {"batch_size": 1024, "shards": 8}), "digits": load("", {})}
    if given.mnist:
        jobs = {"R2 job": load("r2", {"data_dir": given.mnist, "shards": 8})} | jobs
    errors = {name: errors_of(name, recipe, given.repeat) for name, recipe in jobs.items()}
    for name, found in errors.items():
        told = "reached" if max(found) <= AIM else "missed"
        print(
            f"{name}: off by {100 * sum(found) / len(found):.0f} % on average, {100 * max(found):.0f} % at most on "
            f"{len(found)} held-out points; aim <= {100 * AIM:.0f} %: {told}"
        )


if __name__ == "__main__":
    main()
