"""A run, read from its directory: `unisono.load`, `unisono.train`. For reports, notebooks, NumPy and pandas.

    run = unisono.load("runs/mine")
    run.metrics["train_loss"]; run.by_rank("compute_s").mean(axis=0); run.summary["test_accuracy"]; run.frame("ranks")
    run.weights["0.W"]; run.plot(); run.report()

The one idea: records as they are on the disk, as columns, with a list of what could not be read (`problems`); a run
that is going on or was killed is a run like any other. Contents are those of the run directory (`storage/rundir.py`),
and of studies (`bench.json`, `scale.json`, `predict.json` and so on), which have no training in them.

Limits: read once, not followed. pandas is no dependency: `frame` says so where it is missing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from unisono.errors import UserError, unknown_name
from unisono.files import expand_user
from unisono.recipe.reading import flat_options
from unisono.report.run.files import Columns, columns_of, read_json, read_records, read_rows, read_table, read_toml
from unisono.report.run.integrity import look_for_damage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDIES = ("bench", "scale", "compare", "profile", "predict", "tune")
"""Commands that leave NAME.json, a list of records."""
POINTS = "points"
"""The runs that a prediction was made of and checked by, from model.json beside predict.json."""
MOST_RANKS = 4096
"""More than that are a damaged file, not a run."""
MOST_PLACES = 1 << 22
"""Values of tables by epoch and rank (`by_rank`) that are held at once; of a run with more, they are not shown."""
CONTRIBUTION = "contribution:"
"""Begins the name of a column of `ranks`: what a rank contributed to a parameter."""
OF_EPOCHS = (
    "epoch", "epoch_s", "total_s", "samples_per_s", "lr", "train_loss", "train_accuracy", "validation_loss",
    "validation_accuracy", "test_loss", "test_accuracy", "staleness_mean", "staleness_max",
    "staleness_counts", "updates", "drops", "sent_bytes_per_step",
)  # fmt: skip
"""Columns of `metrics` that a run may have."""
OF_RANKS = (
    "epoch", "rank", "host", "samples", "compute_s", "sync_s", "wait_s", "data_s", "update_s", "last_steps",
    "pushes", "staleness_mean", "staleness_max", "drops", "clips", "busy_s",
)  # fmt: skip
"""Columns of `ranks` that a run may have, but for those of each parameter and of each master."""
LOSSES = ("train_loss", "validation_loss", "test_loss")
TRAINING = ("recipe.toml", "metrics.jsonl", "summary.json")
"""A directory that holds one of them is a run's."""


@final
@dataclass(frozen=True)
class Run:
    """What is in a run directory. All of it may be empty, and none of it is checked."""

    path: Path
    recipe: dict[str, Any] = field(default_factory=dict, repr=False)
    summary: dict[str, Any] = field(default_factory=dict, repr=False)
    """Empty while the run goes on."""
    metrics: Columns = field(default_factory=dict, repr=False)
    """A value an epoch."""
    ranks: Columns = field(default_factory=dict, repr=False)
    """A value per epoch and rank."""
    events: list[dict[str, Any]] = field(default_factory=list, repr=False)
    studies: dict[str, list[dict[str, Any]]] = field(default_factory=dict, repr=False)
    """What commands left, under their names: records of `unisono bench` under "bench", rows of `unisono scale` under
    "scale"; what a prediction was checked by under "points"."""
    utilisation: Columns = field(default_factory=dict, repr=False)
    """What ranks, nodes and GPUs did, every two seconds: a value a line of utilisation.csv."""
    about: dict[str, Any] = field(default_factory=dict, repr=False)
    """Of a study: the command, the recipe that its runs have in common, what they differ in, the machine."""
    problems: list[str] = field(default_factory=list)
    """What is missing or damaged, a sentence each."""
    going_on: bool = False
    """Whoever follows it saw it write a moment ago; the files alone do not tell that from one that was cut off."""

    @property
    def name(self) -> str:
        """Of its directory."""
        return self.path.resolve().name

    @property
    def trained(self) -> bool:
        """Whether there is any training in it, not only a study."""
        return bool(self.recipe or self.summary or self.metrics)

    def numbers(self, name: str) -> np.ndarray:
        """A column of `metrics` as float64, nan where there is nothing; a `UserError` if no run has such a column."""
        _require_column(name, self.metrics, OF_EPOCHS, "metrics")
        found = self.metrics.get(name)
        epochs = len(next(iter(self.metrics.values()), ()))
        return np.full(epochs, np.nan) if found is None or found.dtype == object else found.astype(np.float64)

    def by_rank(self, name: str) -> np.ndarray:
        """A column of `ranks` as (epoch, rank) float64, epochs as in `metrics`; nan where there is nothing; a
        `UserError` if no run has such a column."""
        _require_column(name, self.ranks, OF_RANKS, "ranks")
        found = np.full((len(self.numbers("epoch")), self.size), np.nan)
        values = self.ranks.get(name)
        if values is not None and values.dtype != object:
            lines, epochs, ranks = self._places
            found[epochs, ranks] = values[lines]
        return found

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lines of `ranks`, and the row and column of each in what `by_rank` gives."""
        rows = {epoch: row for row, epoch in enumerate(self.numbers("epoch").tolist())}
        epochs, ranks = self.ranks.get("epoch"), self.ranks.get("rank")
        if not self.size or epochs is None or ranks is None:
            return (np.zeros(0, np.int64),) * 3
        at = np.array([rows.get(epoch, -1) for epoch in epochs.tolist()], np.int64)
        lines = np.flatnonzero((at >= 0) & (ranks >= 0))
        return lines, at[lines], ranks[lines]

    @property
    def size(self) -> int:
        """Ranks that reported; 0 if a table of what each did would be too large."""
        ranks = size_in(self.ranks)
        return ranks if 0 < ranks <= MOST_RANKS and ranks * len(self.numbers("epoch")) <= MOST_PLACES else 0

    @property
    def contributions(self) -> list[str]:
        """The parameters of which `ranks` has contributions; none if tables of all of them would be too large."""
        names = [
            name for name, values in self.ranks.items() if name.startswith(CONTRIBUTION) and values.dtype != object
        ]
        fits = len(names) * len(self.numbers("epoch")) * self.size <= MOST_PLACES
        return [name.removeprefix(CONTRIBUTION) for name in names] if fits else []

    def frame(self, name: str) -> Any:
        """metrics, ranks, events, utilisation or a study as a pandas DataFrame."""
        tables: dict[str, Columns] = {"metrics": self.metrics, "ranks": self.ranks, "events": columns_of(self.events)}
        tables["utilisation"] = self.utilisation
        tables |= {study: columns_of(records) for study, records in self.studies.items()}
        if name not in tables:
            raise unknown_name("table", name, tables)
        if find_spec("pandas") is None:
            raise UserError(
                "pandas is not installed", hint="pip install pandas; the same columns are NumPy arrays here"
            )
        import pandas

        return pandas.DataFrame(tables[name])

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """What was learnt: the arrays in model order, by name; a `UserError` if they are missing or damaged."""
        from unisono.storage.weights import read

        return read(self.path)

    def state_dict(self) -> dict[str, Any]:
        """The same as torch's tensors by torch's names, for `load_state_dict` of the same network."""
        from unisono.storage.weights import load as load_weights

        return load_weights(self.path).state_dict()

    def report(self, out: str | Path = "") -> Path:
        """Writes the run as one web page, as `unisono report` does; its path. out: report.html in the run if empty."""
        from unisono.report.html.document import write_report
        from unisono.storage.run_files import REPORT

        target = expand_user(out) if str(out) else self.path / REPORT
        write_report(target, [self], given=bool(str(out)))
        return target

    def plot(self) -> "Figure":
        """The losses against the epoch, as a matplotlib figure."""
        from unisono.report.run.loss_plot import loss_figure

        columns = {name: self.numbers(name).tolist() for name in ("epoch", *LOSSES)}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return loss_figure([{name: value for name, value in row.items() if value == value} for row in rows])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from unisono.report.html.document import notebook_html

        return notebook_html(self)


def size_in(ranks: Columns) -> int:
    """How many ranks the highest one in `ranks` speaks of."""
    found = ranks.get("rank")
    return int(found.max()) + 1 if found is not None and found.dtype == np.int64 and len(found) else 0


def _require_column(name: str, table: Columns, usual: Iterable[str], where: str) -> None:
    """A run without a test part, or whose file is damaged, lacks usual columns; any other name is a mistake."""
    if name not in table and name not in usual:
        raise unknown_name(f"column of {where}", name, [*table] or [*usual])


def load(run: str | Path) -> Run:
    """The records of a run directory, or of a study: a directory of `unisono bench --out`, `scale`, `compare`, `profile
    --out`, `predict` or `tune`, or its bench.json, scale.json ..."""
    path = expand_user(run)
    if path.is_file() and path.stem in STUDIES and path.suffix == ".json":
        path = path.parent
    _require(path)
    problems: list[str] = []
    studies = {name: found for name in STUDIES if (found := read_records(path / f"{name}.json", problems))}
    if "predict" in studies and (points := _points(path / "model.json", problems)):
        studies[POINTS] = points
    if not any((path / name).exists() for name in TRAINING):
        return Run(path, studies=studies, about=read_json(path / "about.json", problems), problems=problems)
    metrics = columns_of(_epochs(path / "metrics.jsonl", problems), problems, "metrics.jsonl")
    read = Run(
        path,
        flat_options(read_toml(path / "recipe.toml", problems)),
        read_json(path / "summary.json", problems),
        metrics,
        read_table(path / "ranks.csv", problems),
        read_rows(path / "events.jsonl", problems),
        studies,
        read_table(path / "utilisation.csv", problems),
        problems=problems,
    )
    for name, meaning in (
        ("recipe.toml", "how to run it again is not known"),
        ("metrics.jsonl", "no epoch has ended"),
        ("ranks.csv", "what each rank did is not known"),
        ("summary.json", "the run is going on, or was ended before it could write one"),
    ):
        if not (path / name).exists():
            problems.append(f"{name} is missing: {meaning}")
    shown = {"metrics.jsonl": metrics.get("epoch"), "ranks.csv": read.ranks.get("epoch")}
    look_for_damage(path, read.summary, shown, problems)
    much = f"{len(read.numbers('epoch')):,} epochs of {size_in(read.ranks):,} ranks are more than a report can hold"
    if size_in(read.ranks) > read.size:
        problems.append(f"ranks.csv: {much}: what each rank did is left out")
    elif not read.contributions and (names := [name for name in read.ranks if name.startswith(CONTRIBUTION)]):
        problems.append(f"ranks.csv: {len(names):,} parameters in {much}: contributions are left out")
    if lost := _lacking(read):
        problems.append(f"ranks.csv: {lost} of {len(read.numbers('epoch'))} epochs lack a rank")
    return read


def _points(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """Of a prediction: predicted and measured steps; none if the rate was given."""
    found = read_json(path, problems).get("points")
    return [point for point in found if isinstance(point, dict)] if isinstance(found, list) else []


def _lacking(run: Run) -> int:
    """Epochs of which ranks are missing below one that is there, or all; a run may be resumed with more or fewer."""
    there = np.isfinite(run.by_rank("rank"))  # (epoch, rank)
    if not run.size:
        return 0
    highest = run.size - there[:, ::-1].argmax(axis=1)
    return int(((there.sum(axis=1) != highest) | ~there.any(axis=1)).sum())


def _epochs(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    """Records that are of an epoch; what is not has no place on an axis."""
    rows = read_rows(path, problems)
    kept = [row for row in rows if type(row.get("epoch")) is int and 0 < row["epoch"] < 2**53]
    if len(kept) < len(rows):
        left = len(rows) - len(kept)
        told = "1 record is of no epoch" if left == 1 else f"{left} records are of no epoch"
        problems.append(f"{path.name}: {told} and left out")
    return kept


def _require(path: Path) -> None:
    """A `UserError` that says what is there instead of a run."""
    known = (*TRAINING, *(f"{name}.json" for name in STUDIES))
    if not path.exists():
        raise UserError(f"there is no run {str(path)!r}", hint="give a run directory, such as runs/NAME")
    if not path.is_dir():
        raise UserError(f"{path} is a file", hint="give the run directory that it is in")
    if any((path / name).exists() for name in known):
        return
    if (path / "study.json").exists() or (path / "about.json").exists():
        raise _unfinished(path)
    inside = sorted(entry.name for entry in path.iterdir() if any((entry / name).exists() for name in known))
    hint = (
        f"give one of the runs in it: {', '.join(inside[-3:])}{' ...' if inside[3:] else ''}"
        if inside
        else "give a run directory of unisono train"
    )
    raise UserError(
        f"{path} is no run: it has no {', no '.join(TRAINING)}, and of no study ({', '.join(STUDIES)}) a .json",
        hint=hint,
    )


def _unfinished(path: Path) -> UserError:
    """Of a study that was interrupted before it had anything to show, or is going on: what it is, and how to go on."""
    ignored: list[str] = []
    given = read_json(path / "about.json", ignored).get("command")
    command = given if isinstance(given, str) and given.isprintable() else ""
    if (path / "study.json").exists():
        kind = read_json(path / "study.json", ignored).get("kind")
        ended = sum(row.get("status") == "finished" for row in read_rows(path / "cells.jsonl", ignored))
        told = {0: "no run of it has ended yet", 1: "1 run of it has ended well"}
        found = told.get(ended, f"{ended} runs of it have ended well")
        again = f"go on with: {command}" if command else "the same command goes on"
    else:  # bench and profile, which keep nothing on their way
        kind = [*command.split(), "", ""][1]
        found, again = "nothing was measured to the end", f"run it again: {command}" if command else "run it again"
    what = f"a study of unisono {kind}" if kind in STUDIES else "a study"
    return UserError(
        f"{path} is {what} that has nothing to show yet: {found}", hint=f"it may be going on; else {again}"
    )
