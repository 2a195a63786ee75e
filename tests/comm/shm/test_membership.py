"""`world.comm` when a rank is killed: collectives go over those who live, or raise at once on all of them."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unisono
from unisono.arena.membership import protocol
from unisono.arena.sync.barrier import Barrier
from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import Envelope
from unisono.errors import CommError, RankFailed, RankLost, UserError
from unisono.world import World

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.standard_normal((101, 13)).astype(np.float32))
Y = (X[:, 0] > 0).long()
STEPS = 5  # 101 samples in batches of 24
WAIT_S = 60.0
"""Far longer than any of these runs: one that waits for a dead rank fails."""


@pytest.fixture(scope="module", autouse=True)
def torch_is_ready() -> None:
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, once for all ranks


def train(world: World, at: Callable[[str], None] = lambda point: None) -> Iterator[int]:
    """One epoch of a user's own loop; gives the number of each step that is done."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(13, 2)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    at("shared")
    for batch in world.batches((X, Y), batch_size=24):
        for x, y in batch:
            at(f"in step {batch.step}")
            world.backward(torch.nn.functional.cross_entropy(model(x), y))
        at(f"before the update of step {batch.step}")
        optimizer.step()
        yield batch.step


def killer(world: World, *plan: tuple[int, str]) -> Callable[[str], None]:
    """Kills the rank of the plan at its point; ranks as they were numbered at the start."""
    slot = world.rank

    def at(point: str) -> None:
        if (slot, point) in plan:
            os.kill(os.getpid(), signal.SIGKILL)

    return at


def trained(world: World, rank: int) -> int:
    """After an epoch in which nothing happens this rank dies; gives the number of the others at its start."""
    slot = world.rank
    list(train(world))
    killer(world, (rank, "after training"))("after training")
    return slot


def count_all(world: World, at: Callable[[str], None], lost: list[list[int]]) -> list[int]:
    """An evaluation that is shared out by rank, done again if somebody dies in it: [samples, their numbers' sum]."""
    while True:
        mine = np.arange(len(X))[world.rank :: world.size]
        at("evaluating")
        found = np.array([len(mine), mine.sum()])
        try:
            world.comm.all_reduce(found)
        except RankLost as error:
            lost.append(list(error.ranks))
            continue
        return [int(number) for number in found]


WHOLE = [len(X), sum(range(len(X)))]


def survivors(work: Callable[[World], Any], ranks: int, dead: set[int]) -> list[Any]:
    with pytest.warns(UserWarning, match="the others took over"):
        found = unisono.run(work, ranks, timeout_s=WAIT_S)
    assert {rank for rank, entry in enumerate(found) if entry is None} == dead
    return [entry for entry in found if entry is not None]


@pytest.mark.parametrize(
    ("ranks", "rank", "point"),
    [
        (2, 0, "in step 0"),
        (3, 2, "shared"),
        (2, 1, "before the update of step 4"),
        (3, 0, "before the update of step 2"),
        (3, 1, "in step 4"),
        (4, 3, "in step 2"),
    ],
)
def test_after_a_step_that_was_taken_over_everything_is_told_of_those_who_live(ranks, rank, point):
    def work(world: World) -> Any:
        at, lost, slot = killer(world, (rank, point)), [], world.rank
        for _ in train(world, at):
            pass
        gathered = world.comm.gather(np.array([slot, world.rank]), root=world.size - 1)
        word = np.full(7, world.rank)
        world.comm.broadcast(word, root=1 % world.size)
        world.comm.barrier()
        counted = count_all(world, at, lost)
        everybody = world.comm.all_gather(np.array([slot])).ravel().tolist()
        last = None if gathered is None else gathered.tolist()
        return [slot, world.rank, world.size, counted, lost, everybody, last, word.tolist(), world.comm.size]

    living = [slot for slot in range(ranks) if slot != rank]
    size = len(living)
    for now, entry in enumerate(survivors(work, ranks, {rank})):
        gathered = [[slot, place] for place, slot in enumerate(living)] if now == size - 1 else None
        assert entry == [living[now], now, size, WHOLE, [], living, gathered, [1 % size] * 7, size]


@pytest.mark.parametrize(("ranks", "rank"), [(2, 0), (2, 1), (3, 1), (4, 0)])
@pytest.mark.parametrize("point", ["after training", "evaluating"])
def test_a_collective_that_needs_a_dead_rank_raises_on_all_others_and_can_be_done_again(ranks, rank, point):
    def work(world: World) -> Any:
        at, lost = killer(world, (rank, point)), []
        list(train(world, at))
        at("after training")
        counted = count_all(world, at, lost)
        return [counted, lost, world.rank, world.size]

    found = survivors(work, ranks, {rank})
    assert found == [[WHOLE, [[rank]], now, ranks - 1] for now in range(ranks - 1)]


def test_before_the_first_step_all_ranks_count():
    def work(world: World) -> Any:
        lost, counted = [], []

        def at(point: str) -> None:
            if point == "shared":
                killer(world, (1, "shared"))(point)
                counted.append(count_all(world, lambda point: None, lost))

        return [len(list(train(world, at))), counted, lost, world.size]

    assert survivors(work, 3, {1}) == [[STEPS, [WHOLE], [[1]], 2]] * 2


@pytest.mark.parametrize("rank", [0, 2])
def test_what_needs_nothing_of_a_dead_rank_just_passes(rank):
    """And does not count anew: what was shared out before still lacks a part."""

    def work(world: World) -> Any:
        trained(world, rank)
        world.comm.barrier()
        word = np.full(300_001, world.rank, np.int64)  # in several pieces
        world.comm.broadcast(word, root=1)
        world.comm.barrier()
        before = world.size
        with pytest.raises(RankLost, match=f"rank {rank} is gone, so all_gather cannot be completed") as caught:
            world.comm.all_gather(np.zeros(3))
        return [int(word.min()), int(word.max()), before, list(caught.value.ranks), world.size]

    assert survivors(work, 3, {rank}) == [[1, 1, 3, [rank], 2]] * 2


def test_a_broadcast_from_a_dead_rank_raises():
    def work(world: World) -> Any:
        trained(world, 2)
        word = np.zeros(5)
        with pytest.raises(RankLost, match="rank 2 is gone, so broadcast cannot be completed"):
            world.comm.broadcast(word, root=2)
        with pytest.raises(UserError, match="root 2 is outside the world of 2 ranks"):
            world.comm.broadcast(word, root=2)
        word[:] = world.rank
        world.comm.broadcast(word, root=1)
        return word.tolist()

    assert survivors(work, 3, {2}) == [[1.0] * 5] * 2


def test_not_caught_the_error_names_the_dead_rank_at_once():
    def work(world: World) -> None:
        trained(world, 1)
        world.comm.all_reduce(np.zeros(3))

    with pytest.raises(RankFailed, match="rank 1 is gone, so all_reduce cannot be completed") as caught:
        unisono.run(work, 3, timeout_s=WAIT_S)
    assert caught.value.kind == "RankLost"
    assert "unisono.RankLost" in str(caught.value)


@pytest.fixture
def heard_late(monkeypatch) -> None:
    """Rank 2 commits step 3 and dies; rank 0 stands still by then; rank 1 commits last, and has not heard of it."""
    arrive, still = protocol.arrive, protocol.line(0) + protocol._FROZEN

    def struck(words, slot: int, flag: int) -> None:
        here = protocol.unpack(flag)[1:] == (4, protocol.COMMIT)
        if here and slot == 1:
            assert wait_until(lambda: words[still], WAIT_S)
        arrive(words, slot, flag)
        if here and slot == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(protocol, "arrive", struck)


def test_ranks_that_heard_of_a_death_at_different_moments_count_alike(heard_late):
    def work(world: World) -> Any:
        lost, sizes, counts = [], [], []
        for _ in train(world):
            sizes.append(world.size)
            counts.append(count_all(world, lambda point: None, lost))
        return [sizes, counts, lost, world.rank]

    for now, entry in enumerate(survivors(work, 3, {2})):
        assert entry == [[3, 3, 3, 3, 2], [WHOLE] * STEPS, [[2]], now]


def test_one_that_waits_for_a_message_keeps_nobody_from_taking_over(heard_late):
    def work(world: World) -> Any:
        box = np.zeros(3)
        for step in train(world):
            if step == 3 and world.rank == 0:
                world.comm.send(np.full(3, 5.0), dest=1)
            if step == 3 and world.rank == 1:
                world.comm.recv(box, source=0)  # which stands still until this rank does
        return [world.size, box.tolist()]

    assert survivors(work, 3, {2}) == [[2, [0.0] * 3], [2, [5.0] * 3]]


MEETINGS = {"small": 7, "in pieces": 2**18 + 3}
"""Elements of an array that ranks add up: one meeting, or several."""


@pytest.mark.parametrize("kind", MEETINGS)
@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("late", [None, 0])
def test_a_rank_dies_in_the_middle_of_a_collective(monkeypatch, kind, arrives, late):
    """At each of its meetings, before or after it has come; perhaps with another one that comes when the first stands
    still. Whoever gets a sum has the sum of all or of those who live, and all get the same."""
    wait = Barrier.wait
    where = {"rank": -1, "meeting": -1, "dies": -1}

    def struck(self: Barrier, timeout_s: float, stamp: int = 0) -> bool:
        if where["meeting"] >= 0:
            where["meeting"] += 1
            if where["meeting"] == where["dies"]:
                if where["rank"] == 1:
                    if arrives:
                        self._words[self._mine + 1 + (self._number + 1 & 1)] = stamp
                        self._words[self._mine] = self._number + 1
                    os.kill(os.getpid(), signal.SIGKILL)
                if where["rank"] == late:
                    words = where["sharing"].shared.words
                    other = 2 - late
                    assert wait_until(lambda: words[protocol.line(other) + protocol._FROZEN], 30.0)
        return wait(self, timeout_s, stamp)

    monkeypatch.setattr(Barrier, "wait", struck)

    def work(world: World, dies: int) -> Any:
        list(train(world))
        sums = []
        where.update(rank=world.rank, meeting=0, dies=dies, sharing=world.sharing)
        for round in range(3):
            while True:
                mine = np.full(MEETINGS[kind], 10**world.rank + round, np.int64)
                try:
                    world.comm.all_reduce(mine)
                except RankLost:
                    sums.append("lost")
                    continue
                sums.append(sorted({int(mine[0]), int(mine[-1]), int(mine.min()), int(mine.max())}))
                break
        world.comm.barrier()
        return [sums, where["meeting"]]

    for dies in (1, 2, 3) if kind == "small" else (1, 2, 3, 4, 5):
        with pytest.warns(UserWarning, match="rank 1 was killed"):
            first, _, third = unisono.run(lambda world, dies=dies: work(world, dies), 3, timeout_s=WAIT_S)
        assert first[0] == third[0]
        whole, left = [[111 + 3 * round] for round in range(3)], [[11 + 2 * round] for round in range(3)]
        at = first[0].index("lost") if "lost" in first[0] else 3
        assert first[0] == [*whole[:at], *["lost"] * (at < 3), *left[at:]]


def test_messages_of_a_dead_rank_raise_and_those_of_others_arrive():
    def work(world: World) -> Any:
        slot = trained(world, 1)
        box = np.zeros(3)
        if slot == 0:
            with pytest.raises(RankLost, match="rank 1 is gone, so a message cannot be completed"):
                world.comm.recv(box, source=1)
            with pytest.raises(RankLost):
                wait_until(world.comm.irecv(box, source=1).test, WAIT_S)
            with pytest.raises(RankLost):
                wait_until(lambda: world.comm.probe(source=1) is not None, WAIT_S)
        with pytest.raises(RankLost):
            world.comm.all_gather(box)
        if world.rank == 1:
            world.comm.send(np.full(3, 5.0), dest=0, tag=4)
        else:
            assert wait_until(lambda: world.comm.probe() is not None, WAIT_S)
            assert world.comm.probe() == Envelope(1, 4, 24)
            world.comm.recv(box, source=1, tag=4)
        return [slot, world.rank, box.tolist()]

    assert survivors(work, 3, {1}) == [[0, 0, [5.0] * 3], [2, 1, [0.0] * 3]]


def test_a_split_is_broken_if_one_of_its_ranks_dies_and_works_on_if_another_does():
    def work(world: World) -> Any:
        at, slot = killer(world, (3, "after training")), world.rank
        list(train(world, at))
        part = world.comm.split(slot % 2)
        at("after training")
        found = np.array([1.0])
        if slot % 2:
            with pytest.raises(RankLost):
                part.barrier()
            with pytest.raises(CommError, match="broken"):
                part.barrier()
        else:
            part.all_reduce(found)
        with pytest.raises(RankLost):
            world.comm.all_reduce(found.copy())
        if slot % 2 == 0:
            part.all_reduce(found)
        world.comm.all_reduce(found)
        return found.tolist()

    assert survivors(work, 4, {3}) == [[4.0 + 4.0 + 1.0]] * 3


def test_a_collective_in_the_body_of_a_batch_that_lost_a_rank_has_the_batch_dealt_anew():
    def work(world: World, dead: int) -> Any:
        slot, found = world.rank, []
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = torch.nn.Linear(13, 2)
        model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for batch in world.batches((X, Y), batch_size=24, drop_last=True):
            for place, (x, y) in enumerate(batch):
                if (slot, batch.step, place) == (dead, 2, 1):
                    os.kill(os.getpid(), signal.SIGKILL)
                if batch.step == 2 and place == 1 and world.size == 4:
                    world.comm.barrier()
                world.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            found.append(batch.loss)
        return [found, model.weight.detach().numpy().tolist()]

    quiet = unisono.run(lambda world: work(world, -1), 4)[0]
    assert survivors(lambda world: work(world, 3), 4, {3}) == [quiet] * 3
