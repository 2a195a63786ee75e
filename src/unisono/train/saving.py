"""Saving: snapshots of a run, made while it goes on, and put back into another.

The one idea: ranks copy everything into a spare part of the arena at one point of the run, which takes as long as a
copy in memory; a process of its own then writes that to disk, while the ranks go on.

    saver = Saver(job, model, shared, folder, on_event); saver.save_spare(position); saver.tick(); saver.close()
    put_back(model, options, shared.lasting, snapshot)

Limits: while one snapshot is being written no other is begun.
"""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np

from unisono.errors import UnisonoError
from unisono.launch.crew import Crew, answer
from unisono.launch.supervisor import SIGNALS
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.shared import Lasting, Shared
from unisono.train.fingerprint import fingerprint
from unisono.train.job import Job
from unisono.train.snapshots.finding import Snapshot
from unisono.train.snapshots.writing import write
from unisono.train.walk import Walk

Groups: TypeAlias = dict[str, Mapping[str, np.ndarray]]
_WRITER = 0
WAIT_S = 60.0
"""How long the end of a run waits for a snapshot that is being written."""


@final
class Saver:
    """`folder` None: never saves. on_event is told of every snapshot, written or not."""

    def __init__(
        self, job: Job, model: Model, shared: Shared, folder: Path | None, on_event: Callable[[dict[str, Any]], None]
    ) -> None:
        self._job, self._model, self._shared, self._folder, self._on_event = job, model, shared, folder, on_event
        self._crew = Crew(lambda rank, value: None)
        self._position = 0
        self._asked = time.monotonic()

    def tick(self) -> None:
        """Looks after the writer; asks the ranks for a copy when the time has come."""
        if self._crew.living:
            self._hear(self._crew.poll(0.0))
        every_s = self._job.snapshots.seconds
        if self._folder is not None and every_s and time.monotonic() - self._asked > every_s:
            self._asked = time.monotonic()
            self._shared.requests.ask_for_spare()

    def save_spare(self, position: int) -> None:
        """The spare copy is that of what round `position` left; may be told twice."""
        if self._folder is None or position <= self._position:
            return
        self._position, folder = position, self._folder
        assert self._shared.spare is not None
        groups = self._gather(self._shared.spare)

        def live(report: object) -> str:
            for number in SIGNALS:  # sent to everybody, they concern the parent alone
                signal.signal(number, signal.SIG_IGN)
            return self._write(folder, position, groups)

        try:
            self._crew.start(_WRITER, partial(answer, live))
        except OSError as error:  # no memory for another process: the next one may find some
            self._tell(position, None, f"its writer could not be started: {error.strerror}")

    def save_last(self, position: int) -> str:
        """When no rank works any more: what round `position` left; where it is."""
        if self._folder is None:
            return ""
        self._wait()
        if self._crew.living:  # it would keep us from writing, and what it writes is older
            self._crew.kill(_WRITER)
            while self._crew.living:
                self._hear(self._crew.poll(1.0))
        path = self._write(self._folder, position, self._gather(self._shared.lasting_at(position)))
        self._tell(position, path)
        return path

    def _gather(self, lasting: Lasting) -> Groups:
        return gather(self._model, self._job.optimizer, lasting)

    def _write(self, folder: Path, position: int, groups: Groups) -> str:
        walk = Walk(self._job.plan.steps_per_epoch, self._job.recipe.epochs)
        epoch, step = walk.where(position) if position else (1, -1)
        facts = {
            "epoch": epoch,
            "step": step + 1,
            "steps_done": walk.steps_done(position) if position else 0,
            "recipe": asdict(self._job.recipe),
            "fingerprint": fingerprint(self._job.recipe.threads),
            "data": self._job.data_sha256,
        }
        return str(write(folder, position, groups, facts, keep=self._job.recipe.keep).path)

    def _hear(self, ended: list[Any]) -> None:
        for one in ended:
            try:
                self._tell(self._position, one.check())
            except UnisonoError as error:
                self._tell(self._position, None, str(error))

    def _tell(self, position: int, path: str | None, cause: str = "") -> None:
        self._shared.requests.written()
        event = {"kind": "snapshot", "position": position, "path": path}
        self._on_event(event | ({"cause": cause} if cause else {}))

    def _wait(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while self._crew.living and time.monotonic() < deadline:
            self._hear(self._crew.poll(0.2))

    def close(self) -> None:
        """Lets the writer finish."""
        try:
            self._wait()
        finally:
            self._crew.close()


def gather(model: Model, options: OptimizerOptions, lasting: Lasting) -> Groups:
    """What a snapshot holds, by group and name."""
    params, *state = (vector[: model.layout.length] for vector in lasting.vectors)
    names = make(options).state_names
    if len(state) > len(names):  # those of replicas, one after the other
        names = tuple(f"{name}.{replica}" for replica in range(len(state) // len(names)) for name in names)
    return {
        "params": model.layout.views(params),
        "state": dict(zip(names, state, strict=True)),
        "buffers": {"all": lasting.buffers},
        "tables": {"steps": lasting.steps, "scores": lasting.scores},
    }


def put_back(model: Model, options: OptimizerOptions, lasting: Lasting, snapshot: Snapshot) -> None:
    """Fills an arena, of any number of ranks, from a snapshot of the same recipe, but for the number of epochs."""
    for group, places in gather(model, options, lasting).items():
        saved = snapshot.arrays(group)
        for name, place in places.items():
            rows = min(len(place), len(saved[name])) if name == "scores" else None
            place[:rows] = saved[name][:rows]
