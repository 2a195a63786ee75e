"""Ranks that nobody watches over, of which one dies or fails: what the others learn, what is saved, who leaves how.

Ranks are forked, and nobody ends the others when one of them ends; `tests/faults/test_launchers.py` has real launchers.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.training.launched_runs import SMALL, WAYS, Departure, train
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member
from unisono.arena.memory.segment import Segment
from unisono.arena.sync.waiting import wait_until
from unisono.comm.shm.communicator import ShmCommunicator
from unisono.comm.shm.memory import ShmPlan
from unisono.comm.topology.local_peer_watch import PeerWatch
from unisono.errors import NodeLost, RankLost, UserError
from unisono.runs import launched_training
from unisono.runs.early_end import Halted
from unisono.runs.launched_training import train_launched
from unisono.runs.snapshots.saver import Saver
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.snapshots.snapshot import require_newest
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.arena.update import UpdateStep
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.supervise.processes import ChildExit, ProcessGroup, run_child
from unisono.training.job import Job, prepare
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")

Patched = Callable[[pytest.MonkeyPatch, int], None]
"""(patch, rank): makes a rank unlike the others, in its own process."""


def ends_of(
    job: Job,
    folder: Path,
    patched: Patched,
    meanwhile: Callable[[ProcessGroup, dict[int, ChildExit]], None] = lambda *given: None,
) -> dict[int, ChildExit]:
    """How each rank ended, in the order in which they did. meanwhile(process group, ended): called whenever one has."""
    size = job.recipe.ranks.count

    def live(rank: int, report: Callable[[Any], None]) -> None:
        with pytest.MonkeyPatch.context() as patch, World(ShmCommunicator(segment, rank, size, 600.0), report) as world:
            patched(patch, rank)
            train_launched(world, job, RunPlaces(snapshots=folder))

    ended: dict[int, ChildExit] = {}
    with (
        closing(Segment.create(ShmPlan(size).nbytes)) as segment,
        closing(ProcessGroup(lambda rank, value: None)) as process_group,
    ):
        for rank in range(size):
            process_group.start(rank, partial(run_child, partial(live, rank)))
        deadline = time.monotonic() + 60.0
        while process_group.living:
            ended |= {one.rank: one for one in process_group.poll(1.0)}
            meanwhile(process_group, ended)
            assert time.monotonic() < deadline, f"ranks {process_group.living} do not end; {ended}"
    return ended


def in_step_5(act: Callable[[], Any]) -> Patched:
    """Rank 1 does that when its fifth step begins."""

    def patched(patch: pytest.MonkeyPatch, rank: int) -> None:
        def lr(job: Job, step: int) -> float:
            if (rank, step) == (1, 5):
                act()
            return 0.01

        patch.setattr(Job, "lr", lr)

    return patched


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(error: BaseException) -> None:
    raise error


def on_arena(ranks: int) -> Job:
    return prepare(SMALL.with_options(allreduce="arena", ranks=ranks))


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_dies_ends_the_others_at_once_with_its_name(tmp_path, way):
    """Not after the minutes for which ranks wait. Replicas wait elsewhere: they learn it from the signal that launchers
    send to those who are left, which is no request then. On the arena, where what was reached is whole, it is saved."""
    recipe, arena, sent = SMALL.with_options(allreduce=way), way == "arena", []

    def end_the_others(process_group: ProcessGroup, ended: dict[int, ChildExit]) -> None:
        if [*ended] == [1] and not arena and not sent:
            sent.extend([process_group.signal(rank, signal.SIGTERM) for rank in process_group.living])

    ended = ends_of(prepare(recipe.with_options(ranks=3)), tmp_path, in_step_5(die), end_the_others)
    assert not ended[1].answered
    for rank in (0, 2):
        kind, report = ended[rank].failure.kind, ended[rank].failure.report
        assert kind == ("Halted" if arena else "RankLost"), report
        # The other one may have left, for the same reason, before this one comes to look.
        assert re.search(r"rank 1 is gone|ranks 0, 1 are gone|ranks 1, 2 are gone", report), report
    if arena:
        assert str(tmp_path) in ended[0].failure.report, "where it is saved"
        assert ended[0].failure.report.count("HINT:") == 1
        assert train(prepare(recipe), snapshot=require_newest(tmp_path)) == train(prepare(recipe))
    else:
        assert not list(tmp_path.iterdir())


def test_nobody_leaves_before_the_rank_that_saves_what_was_reached(tmp_path):
    """Launchers end everybody when the first one leaves."""
    departure = Departure(tmp_path)

    def patched(patch: pytest.MonkeyPatch, rank: int) -> None:
        in_step_5(die)(patch, rank)
        save, stranded = Saver.save_last, launched_training._halted_by_loss

        def leave(*given: Any) -> Halted:
            halted = stranded(*given)
            departure.leave()
            return halted

        def save_late(*given: Any) -> Any:
            departure.linger()
            return save(*given)

        patch.setattr(Saver, "save_last", save_late)
        if rank == 2:
            patch.setattr(launched_training, "_halted_by_loss", leave)

    ended = ends_of(on_arena(3), tmp_path / "snapshots", patched)
    assert {*ended} == {0, 1, 2}
    departure.check()
    assert require_newest(tmp_path / "snapshots").facts["steps_done"] == 4


def test_a_rank_that_dies_in_an_update_of_the_arena_leaves_nothing_to_save(tmp_path):
    """The parameters are in part those of the round before, and nobody here can take that back."""

    def patched(patch: pytest.MonkeyPatch, rank: int) -> None:
        real = UpdateStep.update

        def update(owner: UpdateStep, position: int, *rest: Any) -> None:
            if (rank, position) == (1, 3):
                die()
            real(owner, position, *rest)

        patch.setattr(UpdateStep, "update", update)

    ended = ends_of(on_arena(2), tmp_path, patched)
    assert ended[0].failure.kind == "RankLost"
    assert not list(tmp_path.iterdir())


def test_a_signal_after_a_death_does_not_cut_an_update_of_the_arena_short(tmp_path):
    """Launchers send one to those who are left. Rank 1 has done its part of the round, so it can be saved."""
    vigils: list[PeerWatch] = []

    def patched(patch: pytest.MonkeyPatch, rank: int) -> None:
        real_update, real_meet = UpdateStep.update, Member.barrier

        def update(owner: UpdateStep, position: int, *rest: Any) -> None:
            if (rank, position) == (0, 3):
                assert wait_until(lambda: vigils[0].exited() == [1], 30.0)
                os.kill(os.getpid(), signal.SIGTERM)
            real_update(owner, position, *rest)

        def meet(member: Member, position: int, phase: int) -> bool:
            if (rank, position, phase) == (1, 3, protocol.COMMIT):
                protocol.arrive(member.words, member.slot, protocol.pack(member.view.number, position, phase))
                die()
            return real_meet(member, position, phase)

        patch.setattr(launched_training, "PeerWatch", lambda comm: vigils.append(PeerWatch(comm)) or vigils[-1])
        patch.setattr(UpdateStep, "update", update)
        patch.setattr(Member, "barrier", meet)

    ended = ends_of(on_arena(2), tmp_path, patched)
    assert ended[0].failure.kind == "Halted", ended[0].failure
    assert require_newest(tmp_path).position == 3


def test_a_rank_that_fails_is_not_lost_and_all_leave_with_its_exit_code(tmp_path):
    """It would fail again: nothing is saved, and no batch system is asked to start the run again."""
    ended = ends_of(on_arena(3), tmp_path, in_step_5(lambda: fail(UserError("no label", hint="give one"))))
    assert [ended[rank].failure.kind for rank in range(3)] == ["OtherFailed", "UserError", "OtherFailed"]
    assert [os.waitstatus_to_exitcode(one.status) for one in ended.values()] == [2, 2, 2]
    assert "rank 1: no label\nHINT: give one" in ended[0].failure.report
    assert not list(tmp_path.iterdir())


def test_nobody_leaves_before_the_rank_that_failed_and_has_the_word(tmp_path):
    departure = Departure(tmp_path)

    def patched(patch: pytest.MonkeyPatch, rank: int) -> None:
        in_step_5(lambda: fail(UserError("no label")))(patch, rank)
        late = departure.linger if rank == 1 else departure.leave
        patch.setattr(SyncArena, "close", lambda strategy: late())

    ends_of(on_arena(3), tmp_path / "snapshots", patched)
    departure.check()


@pytest.mark.parametrize("error", [OverflowError("too much"), SystemExit(3)], ids=["Exception", "SystemExit"])
def test_sigterm_does_not_cut_the_failure_notice_of_a_rank_that_fails_short(tmp_path, error):
    """torchrun sends it to all as soon as one has left, and closing is when other machines are told why."""

    def patched(patch: pytest.MonkeyPatch, rank: int) -> None:
        in_step_5(lambda: fail(error))(patch, rank)
        patch.setattr(
            SyncArena, "snapshot_source", None
        )  # a strategy without snapshots: nobody catches anything on the way
        if rank == 1:
            patch.setattr(SyncArena, "close", lambda strategy: os.kill(os.getpid(), signal.SIGTERM))

    ended = ends_of(on_arena(2), tmp_path, patched)
    assert ended[1].answered, "killed by the signal"
    assert ended[1].failure.kind == type(error).__name__


def test_sigterm_does_not_end_a_rank_that_fails_while_its_snapshot_is_being_written(tmp_path):
    """It waits for that before it says why it leaves."""
    leave = Saver.__exit__

    def signalled(saver: Saver, *given: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        leave(saver, *given)

    def patched(patch: pytest.MonkeyPatch, rank: int) -> None:
        in_step_5(lambda: fail(UserError("no label")))(patch, rank)
        if rank == 1:
            patch.setattr(Saver, "__exit__", signalled)

    ended = ends_of(on_arena(2), tmp_path, patched)
    assert ended[1].answered, "killed by the signal"
    assert ended[1].failure.kind == "UserError"


@pytest.mark.parametrize(
    ("node", "error", "first"),
    [
        (1, NodeLost("node 0 (a, 10.0.0.1, rank 0) was lost", first_hand=True, nodes=[0]), True),
        (1, NodeLost("node 2 (c, 10.0.0.3, rank 2) was lost", first_hand=True, nodes=[2]), False),
        (1, NodeLost("another machine was lost", first_hand=False), True),
        (0, NodeLost("another machine was lost", first_hand=False), False),
        (1, RankLost("rank 1 is gone", ranks=[1]), False),
    ],
    ids=["it is", "another one is", "it may be", "it is this one", "nobody but a rank is"],
)
def test_whether_the_first_machine_is_the_one_that_was_lost(node, error, first):
    """Then another one saves the run."""
    assert launched_training._first_lost(error, MachineLayout.of([0, 1, 2], node, 8)) == first
