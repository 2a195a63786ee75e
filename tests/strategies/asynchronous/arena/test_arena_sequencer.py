"""Desk: what it finds when it begins in the middle, while workers go on."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from unisono.arena.membership.halt_and_snapshot_requests import Requests
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
    adopt_sums,
    token,
)
from unisono.strategies.asynchronous.arena.hooks import set_up
from unisono.strategies.asynchronous.recorded_order import OWN
from unisono.strategies.asynchronous.sequencer import HELLO, PUSH, Entry
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.training.job import prepare

EPOCH, WORKER, TURN = 1, 1, 2
RECIPE = Recipe.from_options(
    model="mlp:4", data="synthetic:classes=2,rows=40,features=3,test_rows=0", strategy="async", ranks=2, masters=1,
    batch_size=10, optimizer="sgd",
)  # fmt: skip


@dataclass
class Desk:
    """A sequencer of four pushes, and what it looks at."""

    buffers: AsyncBuffers
    steps: np.ndarray
    requests: Requests
    sequencer: ArenaSequencer

    def own(self, word: int, rank: int = WORKER) -> int:
        """Where a worker writes."""
        return self.buffers.worker(rank) + word

    def hand(self, word: int, rank: int = WORKER) -> int:
        """Where the batches lie that a worker has."""
        return self.buffers.hand(rank) + word

    def write(self, words: dict[int, int]) -> None:
        for at, value in words.items():
            self.buffers.words[at] = value

    def greeted(self, *ranks: int) -> None:
        """Workers whose greetings are in the log."""
        for number, rank in enumerate(ranks):
            self.buffers.log[number] = Entry(HELLO, rank, -1, 0, 1, 0, 0, 0)
            self.write({self.own(POSTED, rank): token(EPOCH, 1)})
        self.write({ORDERED: token(EPOCH, len(ranks))})

    def post(self, rank: int = WORKER) -> int:
        """The worker is done with the first batch in its hand, which is given."""
        batch = self.buffers.words[self.hand(HAND, rank)]
        self.buffers.found[rank] = 0.0, float(batch), 10.0, 2.5, 7.0
        self.write({self.own(USED, rank): token(EPOCH, 1), self.own(POSTED, rank): token(EPOCH, TURN)})
        return batch


def desk_of(recipe: Recipe = RECIPE) -> Desk:
    job = prepare(recipe)
    model, steps, requests = job.model(), np.full((4, 2), np.nan), Requests(np.zeros(64, np.int64).data)
    terms = async_options_of(job, model)
    buffers = set_up(model, terms, job.shared_optimizer, pushes=4, size=recipe.ranks.count).async_buffers
    return Desk(buffers, steps, requests, ArenaSequencer(buffers, terms, steps, requests))


def test_a_push_that_is_just_being_sent_is_waited_for():
    """Between "I am done with this batch" and "it is in my box" nobody can tell; taken for done it would be counted
    twice, and a batch in the worker's hand would be written over."""
    desk = desk_of()
    words = desk.buffers.words
    desk.greeted(WORKER)
    desk.write({desk.hand(HAND): 0, desk.hand(HAND + 1): 1, desk.hand(DEALT): token(EPOCH, 2)})
    desk.write({desk.own(LEAVING): token(EPOCH, TURN), desk.own(USED): token(EPOCH, 1)})
    waits = []

    def pause() -> None:
        waits.append(desk.post())

    desk.sequencer.open(EPOCH, [WORKER], [0], pause)
    assert waits == [0]
    assert words[desk.hand(DEALT)] == token(EPOCH, 2), "it has two in hand: the one that it sent and the next"
    assert desk.sequencer.turn()
    assert desk.buffers.entry(1)[:3] == (PUSH, WORKER, 0)
    assert words[desk.hand(DEALT)] == token(EPOCH, 3)
    assert words[desk.hand(HAND)] == 2, "in the place of the one that is done"


@pytest.mark.parametrize("alive", [True, False])
def test_who_died_while_it_sent_something_is_not_waited_for(alive):
    desk = desk_of()
    desk.write({desk.own(LEAVING): token(EPOCH, 1)})

    class Waited(Exception):
        pass

    def pause() -> None:
        raise Waited

    with pytest.raises(Waited) if alive else nullcontext():
        desk.sequencer.open(EPOCH, [WORKER if alive else 0], [0], pause)


def test_nothing_is_due_any_more_when_the_epoch_is_closed():
    """A rank that lends a hand would look for ever at what nobody takes."""
    desk = desk_of()
    desk.sequencer.open(EPOCH, [WORKER], [0], lambda: None)
    assert not desk.sequencer.due(WORKER)
    desk.requests.ask_to_halt()
    assert desk.sequencer.due(WORKER)
    assert desk.sequencer.turn()
    desk.write({desk.own(POSTED): token(EPOCH, 1)})
    assert not desk.sequencer.due(WORKER)


def test_whoever_is_awake_sees_to_its_own_push():
    desk = desk_of()
    sequencer = desk.sequencer
    sequencer.open(EPOCH, [WORKER], [0], lambda: None)
    desk.write({desk.own(POSTED): token(EPOCH, 1)})
    assert (sequencer.due(0), sequencer.due(WORKER)) == (False, True)
    desk.write({desk.own(ASLEEP): 1})  # it found the pen taken
    assert (sequencer.due(0), sequencer.due(WORKER)) == (True, True)
    desk.buffers.found[WORKER] = 1.0, -1.0, 0.0, 0.0, 0.0  # a greeting
    assert sequencer.turn()
    assert (sequencer.due(0), sequencer.due(WORKER), sequencer.pending) == (False, False, False)


@pytest.mark.parametrize("name", ["BatchAssignment.next", "Sequencer.choose"])
def test_an_epoch_that_cannot_end_is_told_instead_of_waited_for(monkeypatch, name):
    """Batches are left and nobody has one; or everybody waits for a push to be taken, and none may be."""
    desk = desk_of()
    monkeypatch.setattr(f"unisono.strategies.asynchronous.arena.arena_sequencer.{name}", lambda *given: None)
    desk.sequencer.open(EPOCH, [WORKER], [0], lambda: None)
    if name == "Sequencer.choose":
        assert not desk.sequencer.turn(), "the worker computes"
        desk.post()
    with pytest.raises(UnisonoError, match="4 batches and 0 are done"):
        desk.sequencer.turn()


PLAN = [(2, 1), (1, 0), (2, 3), (1, 2)]


def planned_desk(path: Path, done: Sequence[int] = ()) -> Desk:
    """Two workers that have greeted, and an order in which the second is the first to push."""
    rows = [",".join(map(str, (EPOCH, rank, batch))) for rank, batch in PLAN]
    path.write_text("\n".join([",".join(OWN), *rows]))
    desk = desk_of(RECIPE.with_options(ranks=3, epochs=1, order=str(path)))
    desk.steps[list(done)] = 1.0
    adopt_sums(desk.buffers, desk.steps, EPOCH)
    desk.greeted(1, 2)
    return desk


def test_a_recorded_order_lasts_while_it_is_kept_to(tmp_path):
    desk = planned_desk(tmp_path / "pushes.csv", done=[1])
    desk.sequencer.open(EPOCH, [1, 2], [0], lambda: None)
    assert [desk.buffers.words[desk.hand(HAND, rank)] for rank in (1, 2)] == [0, 3]
    desk.post(2)
    assert not desk.sequencer.turn(), "it is rank 1's turn"
    desk.post(1)
    assert desk.sequencer.turn()
    assert desk.buffers.entry(2)[:3] == (PUSH, 1, 0)


@pytest.mark.parametrize(
    ("done", "views"), [((), ([1], [1, 2])), ((0, 2), ([1, 2],))], ids=["a worker was lost", "a run was resumed"]
)
def test_a_recorded_order_that_was_left_is_not_taken_up_again(tmp_path, done, views):
    """Its next push might never come: batches were dealt otherwise."""
    desk = planned_desk(tmp_path / "pushes.csv", done)
    for workers in views:
        desk.sequencer.open(EPOCH, workers, [0], lambda: None)
    batch = desk.post(1)
    assert desk.sequencer.turn()
    assert desk.buffers.entry(2)[:3] == (PUSH, 1, batch)
