"""kill -9 in the middle of a user's own loop: the others go on with the same bits; what follows a step runs once."""

import os
import signal
import time

import numpy as np
import psutil
import pytest

import unisono
from unisono.arena.membership import protocol
from unisono.arena.sync.waiting import wait_until
from unisono.errors import RankFailed, RankLost
from unisono.launch import local
from unisono.optim.base import Optimizer

torch = pytest.importorskip("torch")

from support.training.loop_checkpoint_cases import X, Y, sha_of  # noqa: E402

STEPS = 2 * 4  # 150 samples in batches of 40, two epochs
RANKS = 3


def loop(world: unisono.World, die) -> dict:
    torch.set_num_threads(1)  # three ranks with as many threads as cores each would mostly wait for one another
    torch.manual_seed(0)
    layers = torch.nn.BatchNorm1d(80), torch.nn.ReLU(), torch.nn.Dropout(0.2)
    model = torch.nn.Sequential(torch.nn.Linear(12, 80), *layers, torch.nn.Linear(80, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = world.share(model, optimizer, clip=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    losses, firsts, rank = [], [], world.rank  # as it was at first: those who are left are numbered anew
    for batch in world.batches((X, Y), batch_size=40, epochs=2):
        for x, y in batch:
            die("in a shard", rank, len(losses))
            world.backward(torch.nn.functional.cross_entropy(model(x), y))
        die("before the step", rank, len(losses))
        optimizer.step()
        die("after the step", rank, len(losses))
        scheduler.step()
        losses.append(batch.loss)
        firsts.append(world.first)
    return {"sha": sha_of(model), "losses": losses, "lr": scheduler.get_last_lr()[0], "first": firsts[-1]}


def at(*wanted: tuple[str, int, int]):
    """Dies at (where, rank, step)."""

    def die(*point: object) -> None:
        if point in wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


never = at()


@pytest.fixture(scope="module")
def quiet() -> dict:
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, once for all ranks
    return unisono.run(lambda world: loop(world, never), RANKS)[0]


def check(work, lost: set[int], quiet: dict, **options) -> None:
    """The ranks that are lost are taken over, and the others end as if nothing had happened."""
    with pytest.warns(
        UserWarning, match=f"rank [{''.join(map(str, lost))}] was killed by SIGKILL; the others took over"
    ):
        found = unisono.run(work, RANKS, **options)
    assert {rank for rank, entry in enumerate(found) if entry is None} == lost
    living = [entry for entry in found if entry is not None]
    for entry in living:
        assert entry["sha"] == quiet["sha"]
        assert entry["losses"] == quiet["losses"]  # one for each step, to the last digit
        assert len(entry["losses"]) == STEPS
        assert entry["lr"] == quiet["lr"]
    assert [entry["first"] for entry in living] == [True] + [False] * (len(living) - 1)


def test_a_step_that_was_made_by_all_when_one_died_is_not_gone_through_again(quiet, monkeypatch):
    """Rank 2 arrives and dies; rank 0 stands still by then; rank 1 arrives last: so all gradients exist, and what comes
    next are the samples of the next step."""
    arrive, still = protocol.arrive, protocol.line(0) + protocol._FROZEN

    def struck(words, slot: int, flag: int) -> None:
        here = protocol.unpack(flag)[1:] == (4, protocol.READY)
        while here and slot == 1 and not words[still]:
            time.sleep(0.001)
        arrive(words, slot, flag)
        if here and slot == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(protocol, "arrive", struck)
    check(lambda world: loop(world, never), {2}, quiet, timeout_s=20.0)


@pytest.mark.parametrize(
    ("where", "rank"), [("in a shard", 0), ("in a shard", 2), ("before the step", 1), ("after the step", 0)]
)
def test_a_rank_that_dies_is_taken_over(quiet, where, rank):
    check(lambda world: loop(world, at((where, rank, 3))), {rank}, quiet)


def test_shards_that_are_done_are_not_gone_through_again(quiet, tmp_path):
    """8 shards on 3 ranks: rank 1 dies in its third shard of a step."""
    log = tmp_path / "begun"

    def die(where: str, rank: int, step: int) -> None:
        if where != "in a shard":
            return
        with open(log, "ab", buffering=0) as file:
            file.write(bytes([16 * step + rank]))
        if (rank, step) == (1, 2) and log.read_bytes().count(16 * step + rank) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    check(lambda world: loop(world, die), {1}, quiet)
    begun = [byte // 16 for byte in log.read_bytes()]
    assert [begun.count(step) for step in range(STEPS)] == [8, 8, 8 + 1, 6, 8, 8, 8, 6]


def test_a_rank_that_dies_before_anybody_listened_is_taken_over(quiet):
    """The memory is reached through a rank: whichever lives."""

    def work(world: unisono.World) -> dict:
        if world.rank == 0:
            world.report(os.getpid())
        return loop(world, at(("after the step", 0, 1)))

    def late(rank: int, pid: int) -> None:
        assert wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 60.0)

    check(work, {0}, quiet, on_report=late)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_while_the_model_is_being_shared_is_taken_over(quiet, monkeypatch, rank):
    """Its death is heard of before the others have told that they share anything."""
    monkeypatch.setattr(local, "TELLING_S", 60.0)

    def work(world: unisono.World) -> dict:
        announce = world._announce

        def late(news: dict) -> None:
            if world.rank == rank:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.1)
            announce(news)

        world._announce = late
        return loop(world, never)

    check(work, {rank}, quiet, timeout_s=60.0)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_dies_in_the_middle_of_an_update(quiet, monkeypatch, rank):
    """Its chunk is half updated; what was done of it is taken back, and done again by others."""
    plain, calls = Optimizer.update, []

    def update(self, params, grads, state, lr, step, scale):
        plain(self, params, grads, state, lr, step, scale)
        calls.append(step)
        if step == 5 and place["rank"] == rank:
            params[:7] = 99.0
            os.kill(os.getpid(), signal.SIGKILL)

    place = {"rank": -1}
    monkeypatch.setattr(Optimizer, "update", update)

    def work(world: unisono.World) -> dict:
        place["rank"] = world.rank
        return loop(world, never)

    check(work, {rank}, quiet)


def test_all_but_one_may_die(quiet):
    die = at(("in a shard", 0, 2), ("before the step", 1, 5))
    check(lambda world: loop(world, die), {0, 1}, quiet)


def test_nobody_left_is_a_failure():
    die = at(*(("in a shard", rank, 2) for rank in range(RANKS)))
    with pytest.raises(RankFailed, match="was killed by SIGKILL"):
        unisono.run(lambda world: loop(world, die), RANKS)


def test_an_exception_is_not_a_death():
    def work(world: unisono.World) -> dict:
        def raise_it(*point: object) -> None:
            if point == ("before the step", 1, 3):
                raise ValueError("mine")

        return loop(world, raise_it)

    with pytest.raises(RankFailed, match="ValueError: mine"):
        unisono.run(work, RANKS)


def test_before_a_model_is_shared_a_death_ends_the_run():
    def work(world: unisono.World) -> None:
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        world.comm.barrier()

    with pytest.raises(RankFailed, match="rank 1: was killed by SIGKILL"):
        unisono.run(work, RANKS)


def after_a_look(world: unisono.World, *, look: bool) -> list:
    """Trains; before that, if `look`, two shards of other data are gone through and left without a step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 2)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    if look:
        for batch in world.batches((X * 100, 1 - Y), batch_size=24):
            for place, (x, y) in enumerate(batch):
                world.backward(torch.nn.functional.cross_entropy(model(x), y))
                if place == 1:
                    break
            break
    losses = []
    for batch in world.batches((X[:47], Y[:47]), batch_size=24, shuffle=False):
        for x, y in batch:
            world.backward(torch.nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        losses.append(batch.loss)
    return [losses, model.weight.detach().numpy().tolist()]


@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_of_a_batch_that_was_left_do_not_count_in_the_next_one(ranks):
    expected, found = (
        unisono.run(lambda world, look=look: after_a_look(world, look=look), ranks)[0] for look in (False, True)
    )
    assert found[0][0] == expected[0][0], "the first loss: the data are in order"
    assert found[1] == expected[1]


def with_a_collective(world: unisono.World, dead: int) -> str:
    """In its second step rank `dead` dies, while the others sum a number within their first shard. Rank 2, whose shard
    becomes rank 1's, comes back from that when rank 1 has computed and added up all of its own."""
    rank = world.rank
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 2)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    labels = optimizer._sharing.shared.labels
    for batch in world.batches((X, Y), batch_size=40):
        for place, (x, y) in enumerate(batch):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            if (batch.step, place) == (1, 0) and dead >= 0:
                if rank == dead:
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    world.comm.all_reduce(np.ones(1))
                except RankLost:
                    if rank == 2:
                        assert wait_until(lambda: labels[4] % 2**20 == 2, 60.0)
                dead = -1
            world.backward(loss)
        optimizer.step()
    return model.weight.detach().numpy().tobytes().hex()


@pytest.mark.filterwarnings("ignore:rank 3 was killed")
def test_a_gradient_that_comes_late_does_not_overwrite_what_was_dealt_anew():
    quiet = unisono.run(lambda world: with_a_collective(world, -1), 4)
    found = unisono.run(lambda world: with_a_collective(world, 3), 4)
    assert found[3] is None
    assert set(found[:3]) == set(quiet)
