"""Ranks that differ, skip, leave or die: the others learn who and why, and nobody hangs."""

import itertools
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch._C._distributed_c10d import AllreduceOptions, BarrierOptions, BroadcastOptions
from torch.distributed import HashStore

from support.torch_ranks import in_ranks
from unisono.arena.reduction_tree import combine
from unisono.errors import CommError, CommTimeout, Mismatch

LAYOUTS = [[(0, 1, 2)], [(0, 1), (2,)], [(0,), (1,), (2,)]]


def summed(group, count=4, dtype=torch.float32):
    return group.allreduce([torch.ones(count, dtype=dtype)], AllreduceOptions())


DIFFERENT = {
    "lengths": lambda group: summed(group, 4 + group.rank()),
    "types": lambda group: summed(group, dtype=torch.float64 if group.rank() == 1 else torch.float32),
    "calls": lambda group: group.barrier(BarrierOptions()) if group.rank() == 2 else summed(group),
    "empty": lambda group: summed(group, 0 if group.rank() == 0 else 4),
}


@pytest.mark.parametrize("machines", LAYOUTS)
@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_call_different_things(name, machines):
    def work(group):
        try:
            DIFFERENT[name](group).wait()
        finally:
            time.sleep(0.05)  # over gloo a rank that has left is told from one that differs only if it is still there

    for error in in_ranks(3, work, machines, timeout_s=60.0):
        assert isinstance(error, Mismatch | CommError), error
        assert isinstance(error, Mismatch) or len(machines) > 1
        assert "waited" not in str(error), error


def test_the_message_names_what_each_rank_called():
    results = in_ranks(3, lambda group: DIFFERENT["types"](group).wait())
    text = "all_reduce of 4 elements of float32 (sum) on rank 0, 2; all_reduce of 4 elements of float64 (sum) on rank 1"
    assert all(isinstance(error, Mismatch) and text in str(error) for error in results)


def test_a_rank_that_skips_a_collective_is_named():
    def work(group):
        if group.rank() == 1:
            time.sleep(0.3)  # it is there, and does something else
            return None
        opts = AllreduceOptions()
        opts.timeout = timedelta(seconds=0.1)
        group.allreduce([torch.ones(3)], opts).wait()

    first, _, third = in_ranks(3, work)
    for error in (first, third):
        assert isinstance(error, CommTimeout)
        assert error.missing == (1,)
        assert "all_reduce" in str(error)


def test_a_monitored_barrier_of_no_time_waits_for_nobody():
    """In other calls torch gives 0 where it has no time-out."""

    def work(group):
        if group.rank() == 0:
            group.monitored_barrier(timedelta(0))
        else:
            time.sleep(0.5)

    error, _ = in_ranks(2, work)
    assert isinstance(error, CommTimeout)
    assert error.missing == (1,)
    assert "did not arrive" in str(error)


def test_a_rank_that_leaves_early_is_named_at_once():
    def work(group):
        if group.rank() == 2:
            return
        summed(group).wait()

    first, second, _ = in_ranks(3, work, timeout_s=60.0)
    for error in (first, second):
        assert isinstance(error, CommTimeout)
        assert error.missing == (2,)
        assert "has left" in str(error)


@pytest.mark.parametrize("machines", [[(0, 1), (2, 3)], [(0, 1, 2), (3,)], [(0,), (1, 2), (3,)]])
def test_every_rank_learns_why_another_one_has_failed(machines):
    """The cause, not only that a rank of its machine, or a machine, is no longer there."""

    def work(group):
        if group.rank() == 3:
            group._queue.break_off("its disk is full", CommError("its disk is full"))
        summed(group).wait()

    *others, _ = in_ranks(4, work, machines)
    assert all(isinstance(error, CommError) and "its disk is full" in str(error) for error in others), others


def test_errors_are_also_those_that_scripts_catch_around_gloo():
    def work(group):
        with pytest.raises(RuntimeError, match="ranks disagree"):
            summed(group, 4 + group.rank()).wait()
        with pytest.raises(RuntimeError, match="broken"):
            summed(group)
        return "done"

    assert in_ranks(2, work) == ["done", "done"]
    alone, _ = in_ranks(2, work, timeout_s=0.3, absent=[1])
    copied = pickle.loads(pickle.dumps(alone))
    for error in (alone, copied):
        assert isinstance(error, CommTimeout)
        assert isinstance(error, RuntimeError)
        assert error.missing == (1,)
        assert str(error) == str(alone)


def test_a_wait_with_a_time_of_its_own_also_ends_behind_others():
    def work(group):
        if group.rank() == 1:
            return released.wait(60)
        works = [group.allreduce([torch.ones(3)], AllreduceOptions()) for _ in range(3)]
        try:
            with pytest.raises(CommTimeout):
                works[2].wait(timedelta(seconds=0.2))
        finally:
            released.set()
        return True

    released = threading.Event()
    assert in_ranks(2, work, timeout_s=50.0) == [True, True]


@pytest.mark.parametrize("sends", [True, False])
def test_a_message_to_or_from_a_rank_that_has_left(sends):
    """More than the pipe holds, so that a send cannot be done either."""

    def work(group):
        if group.rank() == 1:
            group._queue.break_off("its disk is full", CommError("its disk is full"))
            return released.wait(60)
        try:
            tensor = torch.ones(5_000_000)
            with pytest.raises(CommError, match="its disk is full"):
                (group.send([tensor], 1) if sends else group.recv([tensor], 1)).wait()
        finally:
            released.set()
        return True

    released = threading.Event()
    assert in_ranks(2, work, timeout_s=50.0) == [True, True]


@pytest.mark.parametrize("machines", [[(0, 1), (2,)], [(0, 1, 2)]])
def test_what_a_rank_has_sent_arrives_although_it_has_left(machines):
    """Over gloo a thread has to say so first."""

    def work(group):
        if group.rank() == 1:
            group.send([torch.arange(100_000.0)], 0).wait()
            group._memory.leave("")
        if group.rank():
            return done.wait(60)
        tensor = torch.zeros(100_000)
        try:
            group.recv([tensor], 1).wait()
        finally:
            done.set()
        return torch.equal(tensor, torch.arange(100_000.0))

    for _ in range(5):
        done = threading.Event()
        assert in_ranks(3, work, machines)[0] is True


def test_a_rank_that_is_late_on_another_machine_is_named_by_its_machine():
    def work(group):
        if group.rank() == 3:
            return released.wait(60)
        opts = AllreduceOptions()
        opts.timeout = timedelta(seconds=0.4)
        try:
            group.allreduce([torch.ones(3)], opts).wait()
        finally:
            if next(others) == 2:
                released.set()

    released, others = threading.Event(), itertools.count()
    first, second, third, _ = in_ranks(4, work, [(0, 1), (2, 3)])
    for error in (first, second):
        assert "rank 0 did not arrive" not in str(error)
        assert "2, 3" in str(error), error
    assert third.missing == (3,)


def test_a_reason_that_is_no_text():
    def work(group):
        if group.rank() == 1:
            group._queue.break_off("no file \udcff.pt", CommError("?"))
            return
        summed(group).wait()

    assert "no file ?.pt" in str(in_ranks(2, work)[0])


def test_a_broken_group_refuses_more_and_says_why():
    def work(group):
        with pytest.raises(Mismatch):
            summed(group, 4 + group.rank()).wait()
        with pytest.raises(CommError, match="all_reduce failed: ranks disagree"):
            summed(group)
        return "done"

    assert in_ranks(2, work) == ["done", "done"]


def test_a_work_that_nobody_waits_for_ends_with_its_error():
    def work(group):
        if group.rank() == 1:
            return None
        opts = BroadcastOptions()
        opts.timeout = timedelta(seconds=0.1)
        started = group.broadcast([torch.ones(3)], opts)
        future = started.get_future()
        while not future.done():
            time.sleep(0.01)
        return started.exception()

    assert isinstance(in_ranks(2, work)[0], CommTimeout)


def test_a_rank_that_never_joins_is_named():
    results = in_ranks(2, lambda group: group.rank(), timeout_s=0.5, absent=[1])
    assert isinstance(results[0], CommTimeout)
    assert results[0].missing == (1,)


@pytest.mark.parametrize("machines", LAYOUTS)
@pytest.mark.parametrize("absent", [0, 1, 2])
def test_ranks_start_again_with_the_store_of_an_attempt_to_which_one_did_not_come(absent, machines):
    """As torchrun starts them again after one was killed before it joined; also others, or fewer, or once more."""
    store = HashStore()
    results = in_ranks(3, lambda group: group.rank(), machines, timeout_s=0.2, absent=[absent], store=store)
    assert all(found.missing == (absent,) for rank, found in enumerate(results) if rank != absent)
    for size in (3, 2, 3):
        ranks = [[rank for rank in members if rank < size] for members in machines]
        assert in_ranks(size, lambda group: summed(group).wait(), ranks, store=store) == [True] * size


def test_an_interruption_in_the_middle_of_a_collective_breaks_the_group_on_all_ranks():
    """A signal between a rank's arrival and the end: it must not go on one meeting behind the others."""

    def interrupt(parts, out, *rest):
        if threading.current_thread().name == "interrupted":
            raise KeyboardInterrupt
        return combine(parts, out, *rest)

    def work(group):
        if group.rank() == 0:
            threading.current_thread().name = "interrupted"
            opts = AllreduceOptions()
            opts.asyncOp = False  # else the background thread may do it, which no signal interrupts
            with pytest.raises(KeyboardInterrupt):
                group.allreduce([torch.ones(4)], opts).wait()
        found = []
        for _ in range(3):  # the other rank may have met this one once
            try:
                summed(group).wait()
                found.append("done")
            except CommError:
                found.append("refused")
        return found[-1]

    with patch("unisono.torch.collectives.combine", side_effect=interrupt):
        assert in_ranks(2, work) == ["refused", "refused"]


def test_a_rank_that_fails_lets_the_others_know_at_once():
    def work(group):
        if group.rank() == 0:
            with group._queue.lock:
                group._queue.break_off("made to", ZeroDivisionError())
            time.sleep(0.5)  # it is still there, and so is its process
            return None
        summed(group).wait()

    _, error = in_ranks(2, work, timeout_s=60.0)
    assert isinstance(error, CommTimeout)
    assert error.missing == (0,)


def test_a_forked_process_cannot_act_in_the_place_of_its_parent():
    text = """
        import os, torch, torch.distributed as dist
        dist.init_process_group("unisono")
        dist.all_reduce(torch.ones(2))
        if os.fork() == 0:
            try:
                dist.all_reduce(torch.full((2,), 100.0))
            except Exception as error:
                os._exit(7 if "forked" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        again = torch.ones(2)
        dist.all_reduce(again)
        assert again.tolist() == [2.0, 2.0]
        dist.destroy_process_group()
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(textwrap.dedent(text))
        command = [sys.executable, "-P", "-m", "unisono", "launch", "--ranks", "2", str(script)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr
