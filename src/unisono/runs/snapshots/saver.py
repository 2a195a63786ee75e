"""Saving: snapshots of a run, made while it goes on, and put back into another.

The one idea: ranks copy everything into a spare part of memory at one point of the run, which takes as long as a copy
in memory; a `Writer` then puts that on the disk, while the ranks go on.

    with Saver(job, model, shared, folder, on_event, ProcessWriter()) as saver:
        saver.save_copy(position); saver.tick()
    restore_arrays(model, options, shared.lasting, snapshot)

Limits: while one snapshot is being written no other is begun. A writer that takes too long is ended, and the next one
has twice as long; one that cannot be ended (a thread) is waited for at the end of a run, for minutes.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, final

import numpy as np

from unisono.arena.membership.protocol import COMMIT, View
from unisono.errors import UserError
from unisono.messages.events import Event, SnapshotFailed, SnapshotWritten
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.storage.background_writer import LAST_WAIT_S, WAIT_S, Writer
from unisono.storage.fallback_writer import Place, write_with_fallback
from unisono.storage.path_resolution import here
from unisono.storage.snapshots.facts import EVALUATION, array_specs
from unisono.storage.snapshots.manifest import read
from unisono.storage.snapshots.snapshot import Snapshot, listed
from unisono.storage.snapshots.verified_files import Damaged
from unisono.storage.snapshots.writer import prune, write
from unisono.strategies.arena.state import PersistentArrays, SnapshotSource
from unisono.training.fingerprint import fingerprint
from unisono.training.finite_check import FiniteCheck, NotFiniteTensor, divergence_hint
from unisono.training.job import Job
from unisono.training.round_schedule import RoundSchedule

LIMIT_S = 120.0
"""How long a snapshot may take before its writer is ended; twice as long after each that was."""

Groups: TypeAlias = dict[str, Mapping[str, np.ndarray]]


@final
class Saver:
    """`folder` None: never saves. on_event is told of every snapshot, written or not."""

    def __init__(
        self,
        job: Job,
        model: Model,
        kept: SnapshotSource,
        folder: Path | None,
        on_event: Callable[[Event], None],
        writer: Writer,
    ) -> None:
        self._job, self._model, self._kept, self._folder, self._on_event = job, model, kept, folder, on_event
        self._writer = writer
        self._fingerprint: dict[str, Any] = {}
        self._position = 0
        self._asked = self._begun = time.monotonic()
        self._limit_s = LIMIT_S
        self._ended = ""
        self._data: dict[str, str] = {}
        started = kept.lasting_at(0)
        self._finite = FiniteCheck(model, started.vectors[0], started.buffers)

    def tick(self) -> None:
        """Looks after the writer; asks the ranks for a copy when the time has come."""
        self._hear(0.0)
        if self._writer.busy and time.monotonic() - self._begun > self._limit_s:
            self._end_writer()
        every_s = self._job.snapshots.seconds
        if self._folder is not None and every_s and time.monotonic() - self._asked > every_s:
            self._asked = time.monotonic()
            self._kept.requests.ask_for_snapshot()

    def save_copy(self, position: int) -> None:
        """The spare copy is that of what round `position` left; may be told twice."""
        if self._folder is None or position <= self._position:
            return
        self._position = position
        assert self._kept.spare is not None
        try:
            self._writer.start(partial(self._write, self._folder, position, self._facts(position), self._kept.spare))
            self._begun = time.monotonic()
        except OSError as error:  # no memory for another process: the next one may find some
            self._tell(position, None, f"its writer could not be started: {error.strerror}")

    def save_last(self, position: int, elsewhere: Path | None = None) -> str:
        """When no rank works any more: what round `position` left; where it is, on another disk if need be. elsewhere:
        instead of the folder, and nowhere else."""
        folder = elsewhere or self._folder
        if folder is None:
            return ""
        self._await_writer(folder)
        lasting = self._kept.lasting_at(position)
        write = partial(self._write_into, position, self._facts(position), lasting)
        if elsewhere is not None:
            place = Place(write(folder))
        else:
            nbytes = sum(array.nbytes for array in lasting.arrays)
            say = partial(self._say_refused, position)
            place = write_with_fallback(write, folder, nbytes, partial(prune, folder, within=folder.parent), say)
        self._tell(position, str(place.path), place.cause)
        return str(place.path)

    def _await_writer(self, folder: Path) -> None:
        """Until nothing else is being written; a `UserError` if that takes too long."""
        self._wait(WAIT_S)
        if self._writer.busy and not self._end_writer():
            self._wait(LAST_WAIT_S - WAIT_S)
        while self._ended and self._writer.busy:  # it would keep us from writing, and what it writes is older
            self._hear(1.0)
        if self._writer.busy:
            raise UserError(
                f"the last snapshot was not begun: the one before it is being written for {LAST_WAIT_S:g} s by now",
                hint=f"is the disk of {folder} slow, or not there? --resume goes on from the newest whole one",
            )

    def save_end(self, scores: np.ndarray) -> None:
        """At the end of a whole run that keeps snapshots, or has one since it was asked to end: to train on from, with
        more epochs. Not worth failing for."""
        folder = self._folder
        if folder is not None and (self._job.snapshots or listed(folder)):
            position = last_epoch(self._job, scores)
            try:
                self.save_last(position, elsewhere=folder)
            except (UserError, NotFiniteTensor) as error:
                self._tell(position, None, str(error))

    def _facts(self, position: int) -> dict[str, Any]:
        """All but what takes long. Not for a writer to ask: the fingerprint sets threads for a moment."""
        schedule = RoundSchedule(self._job.plan.steps_per_epoch, self._job.recipe.learning.epochs)
        epoch, step = schedule.where(position) if position else (1, -1)
        self._fingerprint = self._fingerprint or fingerprint(self._job.recipe.ranks.threads)
        return {
            "epoch": epoch,
            "step": step + 1,
            "steps_done": schedule.steps_done(position) if position else 0,
            "recipe": self._job.recipe.options(),
            "directory": here(),
            "code": self._job.code_sha256,
            "fingerprint": self._fingerprint,
        }

    def _write(self, folder: Path, position: int, facts: dict[str, Any], lasting: PersistentArrays) -> str:
        """A `NotFiniteTensor` instead of a snapshot that nobody could go on from."""
        params, *state = lasting.vectors
        step, steps = facts["step"], self._job.plan.steps_per_epoch
        when = f"after {f'step {step} of ' if step < steps else ''}epoch {facts['epoch']}: no snapshot is made of it"
        self._finite(params, lasting.buffers, when, state=state, hint=divergence_hint(self._job.recipe))
        groups = gather(self._model, self._job.optimizer, lasting)
        known = facts | (self._data or {"data": self._job.data_sha256, EVALUATION: self._job.evaluation_sha256})
        keep, run = self._job.recipe.faults.keep, folder.parent
        return str(write(folder, position, groups, known, keep=keep, after=self._folder, within=run).path)

    def _write_into(self, position: int, facts: dict[str, Any], lasting: PersistentArrays, folder: Path) -> Path:
        return Path(self._write(folder, position, facts, lasting))

    def _say_refused(self, position: int, cause: str) -> None:
        self._on_event(SnapshotFailed(position, cause))

    def _hear(self, timeout_s: float) -> None:
        if self._writer.busy and (found := self._writer.ended(timeout_s)) is not None:
            self._tell(self._position, found.path, self._ended if found.path is None and self._ended else found.cause)
            self._ended = ""
            if found.path is not None and not self._data:  # a process that writes cannot tell us what it computed
                with suppress(Damaged):
                    written = read(Path(found.path)).facts
                    self._data = {name: written[name] for name in ("data", EVALUATION)}

    def _end_writer(self) -> bool:
        """Whether it can be ended; its end takes a moment."""
        if not self._ended and self._writer.drop():
            self._ended = f"its writer was not done after {time.monotonic() - self._begun:.0f} s and was ended"
            self._limit_s *= 2.0
        return bool(self._ended)

    def _tell(self, position: int, path: str | None, cause: str = "") -> None:
        self._kept.requests.snapshot_written()
        self._on_event(SnapshotFailed(position, cause) if path is None else SnapshotWritten(position, path, cause))

    def _wait(self, most_s: float) -> None:
        deadline = time.monotonic() + most_s
        while self._writer.busy and time.monotonic() < deadline:
            self._hear(0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets the writer finish, unless whoever asked for an end cannot wait."""
        try:
            if kind is None or not issubclass(kind, KeyboardInterrupt):
                self._wait(WAIT_S)
        finally:
            self._writer.close()


def gather(model: Model, options: OptimizerOptions, lasting: PersistentArrays) -> Groups:
    """What a snapshot holds, by group and name."""
    params, *state = (vector[: model.layout.length] for vector in lasting.vectors)
    names = make(options).state_names
    if len(state) > len(names):  # those of replicas, one after the other
        names = tuple(f"{name}.{replica}" for replica in range(len(state) // len(names)) for name in names)
    return {
        "params": model.layout.views(params),
        "state": dict(zip(names, state, strict=True)),
        "buffers": {"all": lasting.buffers},
        "tables": {"steps": lasting.steps, "scores": lasting.scores, "missed": lasting.missed},
    }


def restore_arrays(model: Model, options: OptimizerOptions, lasting: PersistentArrays, snapshot: Snapshot) -> None:
    """Fills an arena, of any number of ranks, from a snapshot of the same recipe, but for the number of epochs.

    A `UserError` if an option that was allowed to change (a momentum, say) changes what there is to be filled.
    """
    for group, arrays in gather(model, options, lasting).items():
        saved = snapshot.arrays(group)
        # Snapshots of before they were counted have no `missed`.
        places = {name: array for name, array in arrays.items() if name in saved or name != "missed"}
        # Of the scores, which have a row for each epoch, those of a row.
        wanted, found = (array_specs(side, by_row=("scores",)) for side in (places, saved))
        if wanted != found:
            raise UserError(
                f"{snapshot.path} does not fit this recipe: {group}: {found or 'none'} then, {wanted or 'none'} now",
                hint="leave out the options that --allow-change names, or start a new run",
            )
        for name, place in places.items():
            rows = min(len(place), len(saved[name])) if name == "scores" else None
            place[:rows] = saved[name][:rows]


def check_snapshot(job: Job, snapshot: Snapshot) -> None:
    """A `UserError` if `job` cannot go on from it: it is of no round of the run, or of other data or code."""
    _check_place(job, snapshot)
    check_data(job, snapshot)


def _check_place(job: Job, snapshot: Snapshot) -> None:
    epoch, step = snapshot.facts["epoch"], snapshot.facts["step"]
    schedule = RoundSchedule(job.plan.steps_per_epoch, job.recipe.learning.epochs)
    if snapshot.position != schedule.position(epoch, step - 1) or step > schedule.steps + 1:
        raise UserError(
            f"{snapshot.path}: position {snapshot.position} is not that of epoch {epoch}, step {step}, of "
            f"{schedule.steps} steps",
            hint="it is not as unisono wrote it, or of other data: use another snapshot, or start again",
        )


def check_data(job: Job, snapshot: Snapshot) -> None:
    """A `UserError` if the data, or the code of the network, are not those of the snapshot."""
    evaluated = snapshot.facts.get(EVALUATION, job.evaluation_sha256)  # snapshots of before it was kept: `data_note`
    for part, then, now in (
        ("training", snapshot.facts["data"], job.data_sha256),
        ("validation or test", evaluated, job.evaluation_sha256),
    ):
        if then != now:
            raise UserError(
                f"{snapshot.path}: the {part} data are not those of the snapshot",
                hint=f"give the same data again (--data {job.recipe.data.name}), or start a new run",
            )
    if snapshot.facts.get("code", "") != job.code_sha256 and "model" not in job.recipe.faults.allow_change.split(","):
        raise UserError(
            f"the file of --model {job.recipe.model.name}, or a module beside it that it imports, is not what it was "
            "when "
            f"{snapshot.path} was made",
            hint="undo what was changed in it; if that does not change the network: --allow-change model",
        )


def data_note(snapshot: Snapshot) -> str:
    """What to say of a snapshot that does not tell all of its data; empty if it does."""
    if EVALUATION in snapshot.facts:
        return ""
    return "the snapshot does not say which validation and test data the run had: they are not compared"


def last_epoch(job: Job, scores: np.ndarray) -> int:
    """The round that closed the last epoch of a whole run; after an early stop, rounds were left out after it."""
    schedule = RoundSchedule(job.plan.steps_per_epoch, job.recipe.learning.epochs)
    epochs = [epoch for epoch in range(1, schedule.epochs + 1) if scores[epoch].any()]
    return schedule.position(max(epochs, default=schedule.epochs), schedule.steps)


def last_done(job: Job, scores: np.ndarray, view: View) -> int:
    """The last round that is done, to go on from, where all ranks stand still as `view` says."""
    schedule = RoundSchedule(job.plan.steps_per_epoch, job.recipe.learning.epochs)
    if view.position == schedule.final:
        # It changes nothing, and whoever goes on must do it again to say what it found.
        return last_epoch(job, scores)
    position = view.position if view.reached == COMMIT else view.position - 1
    while position and not job.restorable_after(*schedule.where(position)):
        position -= 1
    return position
