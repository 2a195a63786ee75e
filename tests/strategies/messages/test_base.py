"""Ranks that share no memory: who measures what in a survey, what rank 0 is told, and what all know afterwards."""

import socket

import numpy as np
import pytest

import unisono
from unisono.errors import UserError
from unisono.models.nets import build
from unisono.rng import generator
from unisono.strategies.base import Batch, NotFinite, StepResult
from unisono.strategies.messages.base import MessageStrategy


class Idle(MessageStrategy):
    """Its steps take a second for each of data, compute and so on, and two samples a rank number."""

    kept = False

    def step(self, batch: Batch) -> StepResult:
        if batch.step == 0:
            self._message_stats.begin()
        found = StepResult(10.0, 4.0)
        self._message_stats.count(found, 2 * self.rank, (1.0, 2.0, 3.0, 4.0))
        return found

    def _keep(self) -> None:
        self.kept = True


def batch(step: int) -> Batch:
    return Batch(step + 1, 1, step, 1, 1, 0.1, step + 1, lambda shards: [])


def evaluate(world: unisono.World, count: int) -> dict:
    strategy, measured, told = Idle(world.comm, build("mlp:4", 12, 4), epochs=2), [], []
    for step in range(3):
        strategy.step(batch(step))
    strategy.note_memory(1000 + world.rank)

    def measure(number: int) -> tuple[float, float]:
        assert strategy.kept
        measured.append(number)
        return number + 0.5, 1.0

    def tell(table: np.ndarray) -> None:
        told.append(table.tolist())
        strategy.scores[1] = 0.25, 0.5, 1.0

    table = strategy.evaluate(4, count, measure, tell)
    clock = strategy.clock()
    return {
        "table": table.tolist(), "measured": measured, "told": told, "scores": strategy.scores.tolist(),
        "times": strategy.times(1) if strategy.first else None, "sums": strategy.epoch_sums(),
        "memory": strategy.memory_bytes(), "hosts": strategy.hosts, "sync": clock.first_sync_s,
        "ordered": 0 < clock.begun <= clock.ended, "at": strategy.at, "halts": strategy.halts_after(4),
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_survey_is_made_by_all_and_told_by_the_first(ranks, count):
    found = unisono.run(lambda world: evaluate(world, count), ranks)
    table = [[number + 0.5, 1.0] for number in range(count)]
    assert sorted(number for entry in found for number in entry["measured"]) == list(range(count))
    assert max(len(entry["measured"]) for entry in found) == -(-count // ranks)
    assert [entry["told"] for entry in found] == [[table]] + [[]] * (ranks - 1)
    for entry in found:
        assert entry["table"] == table
        assert entry["scores"] == [[0.0] * 3, [0.25, 0.5, 1.0], [0.0] * 3]
        assert entry["hosts"] == [socket.gethostname()] * ranks
        assert entry["sums"] == [30.0, 12.0]
        assert entry["sync"] == 7.0  # of the first step alone
        assert entry["ordered"]
        assert (entry["at"], entry["halts"]) == ([0, True], False)
    assert found[0]["memory"] == sum(1000 + rank for rank in range(ranks))
    spent = {"data_s": 3.0, "compute_s": 6.0, "wait_s": 9.0, "update_s": 12.0, "last_steps": 0.0}
    assert found[0]["times"] == [spent | {"samples": 6.0 * rank} for rank in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "odd", "told"),
    [
        (1, {0}, ""),
        (3, set(), ""),
        (2, {1}, "rank 1 starts from other weights than rank 0"),
        (4, {0}, "ranks 1, 2, 3 start from other weights than rank 0"),
        (4, {2}, "rank 2 starts from other weights than rank 0"),
    ],
)
def test_ranks_that_start_from_other_weights_are_named_on_all_of_them(ranks, odd, told):
    def work(world: unisono.World) -> str:
        model = build("bn-mlp:4", 12, 4)
        strategy = Idle(world.comm, model, epochs=1)
        try:
            strategy.start(model, generator(7 if world.rank in odd else 3, "init"))
        except UserError as error:
            return str(error).splitlines()[0]
        return ""

    found = unisono.run(work, ranks)
    assert len(set(found)) == 1
    assert found[0].startswith(told) if told else found[0] == ""


def test_an_epoch_counts_from_zero():
    def work(world: unisono.World) -> list:
        strategy = Idle(world.comm, build("mlp:4", 12, 4), epochs=1)
        for step in (0, 1, 2, 0, 1):
            strategy.step(batch(step))
        strategy.evaluate(6, 0, lambda number: (0.0, 0.0), lambda table: None)
        return [strategy.epoch_sums(), strategy.times(2)[0]["data_s"]]

    assert unisono.run(work, 2)[0] == [[20.0, 8.0], 2.0]


def test_a_loss_that_is_no_number_names_its_shard():
    assert StepResult.of(np.array([[1.0, 2.0], [0.5, 3.0]])) == StepResult(1.5, 5.0)
    for value in (np.nan, np.inf, -np.inf):
        sums = np.ones((4, 2))
        sums[2, 0] = value
        with pytest.raises(NotFinite, match=f"the loss of shard 2 is {value}") as caught:
            StepResult.of(sums)
        assert caught.value.shard == 2
