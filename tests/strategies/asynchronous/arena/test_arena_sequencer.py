"""Desk: what it finds when it begins in the middle, while workers go on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from unisono.arena.membership.supervisor_requests import Requests
from unisono.errors import UnisonoError
from unisono.recipe import Recipe
from unisono.strategies.asynchronous.arena.arena_sequencer import ArenaSequencer
from unisono.strategies.asynchronous.arena.buffers import (
    ASLEEP,
    DEALT,
    HAND,
    LEAVING,
    ORDERED,
    POSTED,
    USED,
    AsyncBuffers,
    token,
)
from unisono.strategies.asynchronous.arena.progress import adopt
from unisono.strategies.asynchronous.arena.setup import set_up
from unisono.strategies.asynchronous.recordings import OWN
from unisono.strategies.asynchronous.sequencer import HELLO, PUSH, Entry
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.training.job import prepare

EPOCH, WORKER, TURN = 1, 1, 2
RECIPE = Recipe.from_options(
    model="mlp:4", data="synthetic:classes=2,rows=40,features=3,test_rows=0", strategy="async", ranks=2, masters=1,
    batch_size=10, optimizer="sgd",
)  # fmt: skip


def test_a_push_that_is_just_being_sent_is_waited_for():
    """Between "I am done with this batch" and "it is in my box" nobody can tell; taken for done it would be counted
    twice, and a batch in the worker's hand would be written over."""
    job = prepare(RECIPE)
    model = job.model()
    async_buffers = set_up(model, async_options_of(job, model), job.shared_optimizer, pushes=4, size=2).async_buffers
    own, hand, steps = async_buffers.worker(WORKER), async_buffers.hand(WORKER), np.full((4, 2), np.nan)
    async_buffers.log[0] = Entry(HELLO, WORKER, -1, 0, 1, 0, 0, 0)
    async_buffers.words[0] = token(EPOCH, 1)
    async_buffers.words[hand + HAND], async_buffers.words[hand + HAND + 1], async_buffers.words[hand + DEALT] = (
        0,
        1,
        token(EPOCH, 2),
    )
    async_buffers.words[own + POSTED] = token(EPOCH, 1)
    async_buffers.words[own + LEAVING], async_buffers.words[own + USED] = token(EPOCH, TURN), token(EPOCH, 1)
    waits = []

    def pause() -> None:
        waits.append(1)
        async_buffers.found[WORKER] = 0.0, 0.0, 10.0, 2.5, 7.0
        async_buffers.words[own + POSTED] = token(EPOCH, TURN)

    words = np.zeros(64, np.int64).data
    arena_sequencer = ArenaSequencer(async_buffers, async_options_of(job, model), steps, Requests(words))
    arena_sequencer.open(EPOCH, [WORKER], [0], pause)
    assert waits
    assert async_buffers.words[hand + DEALT] == token(EPOCH, 2), "it has two in hand: the one that it sent and the next"
    assert arena_sequencer.turn()
    assert async_buffers.entry(1)[:3] == (PUSH, WORKER, 0)
    assert async_buffers.words[hand + DEALT] == token(EPOCH, 3)
    assert async_buffers.words[hand + HAND] == 2, "in the place of the one that is done"


@pytest.mark.parametrize("alive", [True, False])
def test_who_died_while_it_sent_something_is_not_waited_for(alive):
    job = prepare(RECIPE)
    model = job.model()
    async_buffers = set_up(model, async_options_of(job, model), job.shared_optimizer, pushes=4, size=2).async_buffers
    async_buffers.words[async_buffers.worker(WORKER) + LEAVING] = token(EPOCH, 1)
    arena_sequencer = ArenaSequencer(
        async_buffers, async_options_of(job, model), np.full((4, 2), np.nan), Requests(np.zeros(64, np.int64).data)
    )

    class Waited(Exception):
        pass

    def pause() -> None:
        raise Waited

    if alive:
        with pytest.raises(Waited):
            arena_sequencer.open(EPOCH, [WORKER], [0], pause)
    else:
        arena_sequencer.open(EPOCH, [0], [0], pause)


def test_nothing_is_due_any_more_when_the_epoch_is_closed():
    """A rank that lends a hand would look for ever at what nobody takes."""
    job = prepare(RECIPE)
    model = job.model()
    async_buffers = set_up(model, async_options_of(job, model), job.shared_optimizer, pushes=4, size=2).async_buffers
    requests = Requests(np.zeros(64, np.int64).data)
    arena_sequencer = ArenaSequencer(async_buffers, async_options_of(job, model), np.full((4, 2), np.nan), requests)
    arena_sequencer.open(EPOCH, [WORKER], [0], lambda: None)
    assert not arena_sequencer.due(WORKER)
    requests.ask_to_halt()
    assert arena_sequencer.due(WORKER)
    assert arena_sequencer.turn()
    async_buffers.words[async_buffers.worker(WORKER) + POSTED] = token(EPOCH, 1)
    assert not arena_sequencer.due(WORKER)


def test_whoever_is_awake_sees_to_its_own_push():
    job = prepare(RECIPE)
    model = job.model()
    async_buffers = set_up(model, async_options_of(job, model), job.shared_optimizer, pushes=4, size=2).async_buffers
    arena_sequencer = ArenaSequencer(
        async_buffers, async_options_of(job, model), np.full((4, 2), np.nan), Requests(np.zeros(64, np.int64).data)
    )
    arena_sequencer.open(EPOCH, [WORKER], [0], lambda: None)
    async_buffers.words[async_buffers.worker(WORKER) + POSTED] = token(EPOCH, 1)
    assert (arena_sequencer.due(0), arena_sequencer.due(WORKER)) == (False, True)
    async_buffers.words[async_buffers.worker(WORKER) + ASLEEP] = 1  # it found the pen taken
    assert (arena_sequencer.due(0), arena_sequencer.due(WORKER)) == (True, True)
    async_buffers.found[WORKER] = 1.0, -1.0, 0.0, 0.0, 0.0  # a greeting
    assert arena_sequencer.turn()
    assert (arena_sequencer.due(0), arena_sequencer.due(WORKER), arena_sequencer.pending) == (False, False, False)


@pytest.mark.parametrize("name", ["BatchAssignment.next", "Sequencer.choose"])
def test_an_epoch_that_cannot_end_is_told_instead_of_waited_for(monkeypatch, name):
    """Batches are left and nobody has one; or everybody waits for a push to be taken, and none may be."""
    job = prepare(RECIPE)
    model = job.model()
    async_buffers = set_up(model, async_options_of(job, model), job.shared_optimizer, pushes=4, size=2).async_buffers
    monkeypatch.setattr(f"unisono.strategies.asynchronous.arena.arena_sequencer.{name}", lambda *given: None)
    arena_sequencer = ArenaSequencer(
        async_buffers, async_options_of(job, model), np.full((4, 2), np.nan), Requests(np.zeros(64, np.int64).data)
    )
    arena_sequencer.open(EPOCH, [WORKER], [0], lambda: None)
    own = async_buffers.worker(WORKER)
    if name == "Sequencer.choose":
        assert not arena_sequencer.turn(), "the worker computes"
        async_buffers.found[WORKER] = 0.0, 0.0, 10.0, 2.5, 7.0
        async_buffers.words[own + POSTED] = token(EPOCH, TURN)
    with pytest.raises(UnisonoError, match="4 batches and 0 are done"):
        arena_sequencer.turn()


PLAN = [(2, 1), (1, 0), (2, 3), (1, 2)]


def planned_desk(path: Path, done: Sequence[int] = ()) -> tuple[AsyncBuffers, ArenaSequencer]:
    """Two workers that have greeted, and an order in which the second is the first to push."""
    rows = [",".join(map(str, (EPOCH, rank, batch))) for rank, batch in PLAN]
    path.write_text("\n".join([",".join(OWN), *rows]))
    job = prepare(RECIPE.with_options(ranks=3, epochs=1, order=str(path)))
    model, steps = job.model(), np.full((4, 2), np.nan)
    async_buffers = set_up(model, async_options_of(job, model), job.shared_optimizer, pushes=4, size=3).async_buffers
    steps[list(done)] = 1.0
    adopt(async_buffers, steps, EPOCH)
    for rank in (1, 2):
        async_buffers.log[rank - 1] = Entry(HELLO, rank, -1, 0, 1, 0, 0, 0)
        async_buffers.words[async_buffers.worker(rank) + POSTED] = token(EPOCH, 1)
    async_buffers.words[ORDERED] = token(EPOCH, 2)
    return async_buffers, ArenaSequencer(
        async_buffers, async_options_of(job, model), steps, Requests(np.zeros(64, np.int64).data)
    )


def post(async_buffers: AsyncBuffers, rank: int) -> int:
    """The worker is done with the first batch in its hand, which is given."""
    own, batch = async_buffers.worker(rank), async_buffers.words[async_buffers.hand(rank) + HAND]
    async_buffers.found[rank] = 0.0, float(batch), 10.0, 2.5, 7.0
    async_buffers.words[own + USED], async_buffers.words[own + POSTED] = token(EPOCH, 1), token(EPOCH, TURN)
    return batch


def test_a_recorded_order_lasts_while_it_is_kept_to(tmp_path):
    async_buffers, arena_sequencer = planned_desk(tmp_path / "pushes.csv", done=[1])
    arena_sequencer.open(EPOCH, [1, 2], [0], lambda: None)
    assert [async_buffers.words[async_buffers.hand(rank) + HAND] for rank in (1, 2)] == [0, 3]
    post(async_buffers, 2)
    assert not arena_sequencer.turn(), "it is rank 1's turn"
    post(async_buffers, 1)
    assert arena_sequencer.turn()
    assert async_buffers.entry(2)[:3] == (PUSH, 1, 0)


@pytest.mark.parametrize(
    ("done", "views"), [((), ([1], [1, 2])), ((0, 2), ([1, 2],))], ids=["a worker was lost", "a run was resumed"]
)
def test_a_recorded_order_that_was_left_is_not_taken_up_again(tmp_path, done, views):
    """Its next push might never come: batches were dealt otherwise."""
    async_buffers, arena_sequencer = planned_desk(tmp_path / "pushes.csv", done)
    for workers in views:
        arena_sequencer.open(EPOCH, workers, [0], lambda: None)
    batch = post(async_buffers, 1)
    assert arena_sequencer.turn()
    assert async_buffers.entry(2)[:3] == (PUSH, 1, batch)
