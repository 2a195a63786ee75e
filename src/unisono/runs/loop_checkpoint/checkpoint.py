"""`unisono.keep`: snapshots of the user's own loop, resumed at the exact batch with the same bits.

The one idea: a program that is started again runs again from its beginning, but `world.batches` skips the batches
that are done. Shared state (parameters, optimizer state, buffers) comes from the snapshot at once. The program's own
state (learning rates, schedulers, other objects given to `keep`) is restored when the loop reaches the batch it
continues with. So code after `step()` runs once for each step that a snapshot holds.

    model, optimizer = world.share(model, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    checkpoint = unisono.keep(world, "runs/mine", every="500steps", scheduler=scheduler); checkpoint.resumed_from
    for epoch in world.epochs(5):
        for batch in world.batches(dataset, batch_size=256): ...

A snapshot shows the moment before a batch is given: everything after the step before it is done, on every rank. The
copy of the shared state is made before the next round changes it; a thread of the first member writes it, and the next
member writes it again if that one dies.

SIGTERM, SIGUSR1, SIGHUP and Ctrl-C, to any rank or to the process that started them, end the loop of all ranks when
the next batch is asked for, with a snapshot: `AskedToEnd`, exit code 75.

Limits: batches must come in the same order again; loops that were left early are left there again. `world.epochs` does
not enter epochs that are done. Other code between two loops over batches runs for skipped batches, too; check
`checkpoint.catching_up`. Ranks are not replaced: a new process would not know what the program has done so far.
"""

import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from unisono.arena.memory.segment import Sections
from unisono.comm.broadcast_object import broadcast_object
from unisono.comm.collective_check import lost_rank_error
from unisono.comm.topology.shared_machine import share_segment
from unisono.errors import AskedToEnd, UserError
from unisono.files import WRONG_KINDS, check_entry, expand_user
from unisono.loop.batches import Batch
from unisono.loop.callbacks import NO_CALLBACKS, LoopCallbacks
from unisono.loop.shared_model import ModelSharing
from unisono.loop.state_codec import Arrays, check_alike, check_keepable, pack, restore_state, state_of, unpack
from unisono.messages.rank_reports import StopsOnRequest
from unisono.models.torch.random_state import generator_states, restore_states
from unisono.runs.loop_checkpoint.progress import Progress
from unisono.runs.loop_checkpoint.state import KIND, arrays_of, find, restore_arrays, terms_of
from unisono.safe_print import print
from unisono.storage.background_writer import WAIT_S, Answer, ThreadWriter
from unisono.storage.fallback_writer import write_with_fallback
from unisono.storage.retrying_writer import hint_of
from unisono.storage.run_files import LOCK
from unisono.storage.snapshots import manifest
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.storage.snapshots.writer import prune, write
from unisono.strategies.arena.state import PersistentArrays
from unisono.supervise.signals import stop_requests
from unisono.training.fingerprint import fingerprint
from unisono.training.finite_check import FiniteCheck
from unisono.training.round_schedule import Interval
from unisono.world import World


@final
@dataclass(frozen=True)
class Moment:
    """What is the program's own, as it was."""

    facts: dict[str, Any]
    arrays: Arrays
    """Of the things."""
    buffers: np.ndarray
    """Of the model, those that may change."""


@final
@dataclass(frozen=True)
class CheckpointOptions:
    """Where and how often."""

    folder: Path
    every: Interval
    copies: int


@final
class LoopCheckpoint(LoopCallbacks):
    """One rank's side. `resumed_from`: the snapshot that the loop goes on from; empty if it begins."""

    def __init__(
        self, sharing: ModelSharing, habits: CheckpointOptions, things: Mapping[str, Any], begun: dict[str, Any]
    ) -> None:
        self._sharing, self._habits, self._things, self._begun = sharing, habits, things, begun
        self._requests = sharing.shared.requests
        self.resumed_from: str = begun.get("path", "")
        self._progress = Progress(sharing, begun)
        sharing.steps_before = begun.get("steps", sharing.steps_before)
        self._restored = False
        self._moment: Moment | str = "none was made yet"  # or why there is none
        self._fingerprint: dict[str, Any] = {}
        self._told = 0
        self._saved = time.monotonic()
        self._writer = ThreadWriter()
        lasting = sharing.shared.lasting
        self._finite = FiniteCheck(sharing.vectors, lasting.vectors[0], lasting.buffers)
        self._stack = ExitStack()
        self._stack.enter_context(stop_requests(self._ask))
        if sharing.announce is not None and sharing.member.first:
            sharing.announce(StopsOnRequest())

    @property
    def catching_up(self) -> bool:
        """Whether the batches that were done are still being passed over: for code outside `world.epochs`."""
        return bool(self.resumed_from) and not self._restored

    # --- the moments -------------------------------------------------------------------------------------------------

    def epochs(self, count: int) -> Iterator[int]:
        return self._progress.epochs(count)

    def begin_loop(self) -> None:
        self._progress.enter()

    def batch_status(self, terms: Sequence[int], epoch: int, step: int) -> int:
        return self._progress.judge(terms, epoch, step)

    def before_batch(self) -> None:
        if not self._restored:
            self._restored = True
            self._restore()
        self._hear(0.0)
        position = self._sharing.steps
        if self._requests.halts_after(position):
            self._leave(position)
        if self._requests.snapshot_after(position):
            try:
                self._moment = self._now(position)
            except UserError as error:  # no reason to end a training that goes well
                self._moment = str(error)

    def begin_round(self, position: int) -> None:
        if self._requests.snapshot_after(position - 1):
            self._sharing.update_step.copy_chunk(position - 1)

    def before_ready(self, batch: Batch) -> None:
        if not self._sharing.member.first:
            return
        every, number = self._habits.every, self._progress.done + batch.position
        due = every.due(number) or (batch.last and every.due_after(batch.epoch + 1))
        if every.seconds and time.monotonic() - self._saved > every.seconds:
            due, self._saved = True, time.monotonic()
        self._requests.decide(batch.position, due=due)

    def after_ready(self, position: int) -> None:
        """The copy is complete; told again by the next first member if the one before died meanwhile."""
        self._progress.count()
        spare = self._requests.snapshot_at
        if self._sharing.member.first and self._told != spare < position and self._requests.snapshot_after(spare):
            assert self._sharing.shared.spare is not None
            self._told = spare
            if isinstance(self._moment, str):
                self._tell(Answer(None, self._moment))
                return
            try:
                self._writer.start(partial(self._write, self._sharing.shared.spare, self._moment))
            except OSError as error:
                self._tell(Answer(None, f"its writer could not be started: {error.strerror}"))

    def close(self) -> None:
        try:
            self._wait()
        finally:
            self._stack.close()

    # --- what is done at them ----------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """What is the program's own is as it was when the loop came here before."""
        self._check_schedulers()
        if not self.resumed_from:
            return
        path = Path(self.resumed_from)
        arrays = Snapshot(path, manifest.read(path)).arrays("things")
        with self._fitting("the optimizer's groups"):
            groups = self._sharing.optimizer.param_groups
            saved = [dict(group) for group in unpack(self._begun["groups"], arrays)]
            own = [{name: value for name, value in group.items() if name != "params"} for group in groups]
            check_alike(own, saved, "groups")
            for group, state in zip(groups, saved, strict=True):
                group.update({name: value for name, value in state.items() if name != "params"})
        for name, thing in self._things.items():
            with self._fitting(f"the state of {name}"):
                restore_state(thing, self._begun["things"][name], arrays)
        with self._fitting("the random generators"):
            restore_states(unpack(self._begun["generators"], arrays))  # last: loading may draw

    @contextmanager
    def _fitting(self, what: str) -> Iterator[None]:
        """A snapshot may come from anybody: what its facts do to libraries, and to the user's classes, is not known."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.resumed_from}: {what} cannot be put back: {type(error).__name__}: {str(error)[:300]}",
                hint="give another directory to begin anew, or go on with the program as it was",
            ) from error

    def _check_schedulers(self) -> None:
        """One that is not kept would begin anew, with other learning rates."""
        optimizers = self._sharing.optimizer, self._sharing.optimizer.inner
        scheduled = any(getattr(one.step, "_wrapped_by_lr_sched", False) for one in optimizers)
        if scheduled and not any(getattr(thing, "optimizer", None) in optimizers for thing in self._things.values()):
            raise UserError(
                "a scheduler belongs to the optimizer, and is not kept: started again, it would begin anew",
                hint="unisono.keep(world, folder, scheduler=scheduler)",
            )

    def _now(self, position: int) -> Moment:
        """Step `position` is done, and what follows it."""
        sharing, arrays = self._sharing, Arrays()
        self._fingerprint = self._fingerprint or fingerprint()
        groups = [{k: v for k, v in group.items() if k != "params"} for group in sharing.optimizer.param_groups]
        facts = {
            "kind": KIND,
            "batches": self._progress.done + position,
            "steps": sharing.steps_before + position,
            **self._progress.facts(),
            "terms": terms_of(sharing) | {"the things to keep": sorted(self._things)},
            "groups": pack(groups, arrays, "the optimizer's groups"),
            "things": state_of(self._things, arrays),
            "generators": pack(generator_states(), arrays, "the random generators"),
            "fingerprint": self._fingerprint,
        }
        return Moment(facts, arrays, sharing.vectors.current())

    def _check(self, lasting: PersistentArrays, moment: Moment) -> None:
        """A `NotFiniteTensor` instead of a snapshot that nobody could go on from."""
        params, *state = lasting.vectors
        when = f"after {moment.facts['steps']} steps: no snapshot is made of it"
        hint = "lower the learning rate, or clip gradients (world.share(..., clip=1.0))"
        self._finite(params, lasting.buffers, when, state=state, hint=hint)

    def _write(self, lasting: PersistentArrays, moment: Moment) -> str:
        self._check(lasting, moment)
        return str(self._write_into(lasting, moment, self._habits.folder))

    def _write_into(self, lasting: PersistentArrays, moment: Moment, folder: Path) -> Path:
        facts, buffers = moment.facts, lasting.buffers.copy()
        buffers[: len(moment.buffers)] = moment.buffers  # the program may have written to them after the step
        groups = arrays_of(self._sharing, replace(lasting, buffers=buffers)) | {"things": moment.arrays}
        habits = self._habits
        return write(folder, facts["steps"], groups, facts, keep=habits.copies, after=habits.folder).path

    def _write_last(self, lasting: PersistentArrays, moment: Moment) -> str:
        """On another disk, if that of the folder takes nothing more."""
        folder, nbytes = self._habits.folder, sum(array.nbytes for array in lasting.arrays)
        place = write_with_fallback(
            partial(self._write_into, lasting, moment), folder, nbytes, partial(prune, folder), _say
        )
        if place.cause:
            _say(f"{place.cause}; make room, and move {place.path} to {folder} before the next start")
        return str(place.path)

    def _hear(self, timeout_s: float) -> None:
        if self._writer.busy and (found := self._writer.ended(timeout_s)) is not None:
            self._tell(found)

    def _tell(self, found: Answer) -> None:
        self._requests.snapshot_written()
        if found.path is None:
            warnings.warn(f"a snapshot could not be written: {found.cause}", stacklevel=2)

    def _wait(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while self._writer.busy and time.monotonic() < deadline:
            self._hear(0.2)

    def _ask(self) -> None:
        """In a handler of signals."""
        sharing = self._sharing
        if sharing.peer_watch is not None and (gone := sharing.peer_watch.exited()):
            raise lost_rank_error(sharing.member.slot, "the loop", gone)
        self._requests.ask_to_halt()

    def _leave(self, position: int) -> None:
        """Saves what step `position` left, and leaves with all others; nobody goes before it is saved."""
        sharing, path, moment = self._sharing, "", self._now(position)
        self._check(sharing.shared.lasting, moment)  # on every rank: all of them raise it

        def save() -> None:
            nonlocal path
            if sharing.member.first and not path:  # after a change of membership it may be another one
                self._wait()
                path = self._write_last(sharing.shared.lasting, moment)
                told = f"asked to end after {self._progress.done + position} steps; everything up to here is in {path}"
                _say(f"{told}\nHINT: start the same program again, and it goes on")

        sharing.round.prepare(position + 1, save)
        raise AskedToEnd(str(path or self._habits.folder))


def _say(text: str) -> None:
    print(f"unisono: {text}", file=sys.stderr, flush=True)


def keep(world: World, folder: str | Path, *, every: str = "", copies: int = 2, **things: Any) -> LoopCheckpoint:
    """Snapshots of the loop of `world` go to `folder`; if there is one already, the loop goes on from it.

    Every rank calls it, after `world.share` and before the first batch. every: "500steps", "2epochs" or "30s"; empty:
    only when asked to end. copies: how many snapshots to keep. things: what has a `state_dict()`, or is a dict.
    """
    sharing, comm = world.sharing, world.comm
    habits = CheckpointOptions(expand_user(folder), Interval.parse("every", every), copies)
    if copies < 2:
        raise UserError(f"copies is {copies}", hint="give 2 or more: the newest may turn out to be damaged")
    if sharing.steps or sharing.callbacks is not NO_CALLBACKS:
        why = "the first batch" if sharing.steps else "unisono.keep, once more"
        raise UserError(f"unisono.keep after {why}", hint="call it once, right after world.share")
    for name, thing in things.items():
        check_keepable(name, thing)
    state_of(things, {})  # what cannot be kept is said now, not with the first snapshot

    def look() -> dict[str, Any]:
        try:
            habits.folder.mkdir(parents=True, exist_ok=True)
            check_entry(habits.folder / LOCK, "file")
        except OSError as error:
            raise UserError(f"{error.filename or folder}: {error.strerror}", hint=_hint_of(error)) from None
        snapshot = find(habits.folder, sharing, sorted(things))
        if snapshot is None:
            return {}
        restore_arrays(sharing, snapshot)
        return {"path": str(snapshot.path), **snapshot.facts}

    begun = broadcast_object(comm, look)
    sharing.vectors.enter()  # the module's buffers are the committed ones again
    if habits.every:
        sharing.shared.spare = _spare(world, sharing)
    checkpoint = sharing.callbacks = LoopCheckpoint(sharing, habits, things, begun)
    return checkpoint


def _hint_of(error: OSError) -> str:
    return hint_of(error) if error.errno in WRONG_KINDS else "give a directory that you may write to"


def _spare(world: World, sharing: ModelSharing) -> PersistentArrays:
    """Room for a copy, shared by all ranks."""
    lasting = sharing.shared.lasting
    sections = Sections({str(place): (array.shape, array.dtype) for place, array in enumerate(lasting.arrays)})
    with closing(share_segment(world.comm, list(range(world.size)), sections.nbytes)) as segment:
        *vectors, buffers, steps, scores, missed = (sections.array(segment, str(n)) for n in range(len(lasting.arrays)))
    return PersistentArrays(vectors, buffers, steps, scores, missed)
