"""What studies leave, made up: records of each command, with a stranger's text where one could be, and their files."""

import json
from pathlib import Path

from support.report.profile_records import record, row
from support.report.study_records import failed, record_of
from unisono.measure.prediction.cost import Costs, Work, parse
from unisono.measure.prediction.predict import PredictionRequest, rows_of
from unisono.measure.scale_grid import cells_of_grid
from unisono.recipe import Recipe
from unisono.report.studies import compare, scale, tune
from unisono.study.cells import cells_of, over

EVIL = "<img src=x onerror=alert(1)>"


def scale_rows() -> list[dict]:
    cells = cells_of_grid(Recipe(), "1x1,1x2,1x4", weak=False)
    records = [record_of(cell, repeat, 100.0 * cell.recipe.ranks.count**0.8) for cell in cells for repeat in range(2)]
    return scale.rows_of(cells, records, weak=False, cores=8)


def compare_rows() -> list[dict]:
    cells = cells_of(Recipe(), [over(f"strategy=sync,ddp,{EVIL}")])
    learnt = [
        record_of(cell, 0, rate) | {"accuracies": [0.5, 0.75, 0.8]}
        for cell, rate in zip(cells[:2], (100.0, 50.0), strict=True)
    ]
    return compare.rows_of(cells, [*learnt, failed(cells[2], EVIL)])


def profile_records() -> list[dict]:
    operators = [row("0", "Linear", self_s=1.0, operator=EVIL, shapes="4x2")]
    slow = record(activation="gelu", modules=[row("1", "GELU", self_s=0.5)])
    return [
        {name: value for name, value in one.items() if name != "spans"} for one in (record(operators=operators), slow)
    ]


def predict_rows() -> list[dict]:
    costs, work = Costs(sample_s=1e-4, jitter_s=1e-5, cores=4), Work(512, 8, 4_000_000, 60_000, 1)
    return rows_of(costs, work, PredictionRequest([2, 8, 64, 512], 4, [parse("10gbit,50us"), parse("100gbit,5us")]))


def points() -> dict:
    point = {"name": EVIL, "predicted_s": 0.011, "measured_s": 0.01, "error": 0.1, "held_out": True}
    return {"costs": {}, "points": [point, point | {"error": "x"}, 3]}


def tune_rows() -> list[dict]:
    shown = {"energy_source": "estimate", "memory_bytes": 1 << 20, "shards": 8, "global_batch": 64, "reason": ""}
    trial = shown | {"what": "trial", "status": "finished", "joules_per_sample": 0.001}
    tried = [
        trial | {"digest": f"d{n}", "labels": {"ranks": f"{n}", "threads": "1"}, "samples_per_s": 100.0 * n}
        for n in (1, 2)
    ]
    lost = trial | {"digest": "d4", "labels": {"ranks": "4", "threads": "1"}, "status": "failed", "reason": EVIL}
    rows = [row | {"objective": "throughput", "complete": True} for row in tune.rows_of([*tried, lost])]
    tune.table(rows, "d2")
    return rows


def bench_records() -> list[dict]:
    return [bench_record(slow, name, power) for slow, name in ((1, "shm"), (3, "mpi")) for power in range(6)]


def bench_record(slow: int, transport: str, power: int) -> dict:
    rates = {"algorithm_gb_per_s": 0.5 / slow, "bus_gb_per_s": 0.5 * 1.2**power / slow}
    times = {"median_us": slow * 10.0 * 3**power, "p95_us": slow * 40.0 * 3**power}
    about = {"ranks": 2, "transport": transport, "algorithm": "ring", "nbytes": 1024 * 4**power, "correct": True}
    return about | times | rates


ROWS = {
    "scale": scale_rows,
    "compare": compare_rows,
    "profile": profile_records,
    "predict": predict_rows,
    "tune": tune_rows,
    "bench": bench_records,
}


def make_studies(folder: Path) -> list[Path]:
    """A directory for each."""
    for name, rows in ROWS.items():
        (folder / name).mkdir(parents=True)
        (folder / name / f"{name}.json").write_text(json.dumps(rows()))
    (folder / "predict" / "model.json").write_text(json.dumps(points()))
    return [folder / name for name in ROWS]
