"""Asynchronous training in the arena: the bits of a plain loop that does the same, whatever the number of masters."""

from contextlib import closing
from typing import Any

import pytest

from support.strategies.async_reference import PUSHES, SMALL, in_turn, reference
from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member
from unisono.arena.memory.segment import Segment
from unisono.errors import RankFailed
from unisono.messages.reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.supervised_run import RunPlaces, SupervisedRun
from unisono.strategies.arena.state import ArenaState, plan_sections
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.asynchronous.arena.buffers import DONE, HALTED, ORDERED, WHOLE, token
from unisono.strategies.asynchronous.arena.setup import set_up
from unisono.strategies.asynchronous.arena.strategy import AsyncArena
from unisono.strategies.asynchronous.sequencer import PUSH, Entry
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.training.job import prepare

pytestmark = pytest.mark.usefixtures("no_price")


def run(recipe: Recipe) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a run found, and the records of its epochs."""
    records: list[dict[str, Any]] = []

    def hear(rank: int, value: Any) -> None:
        if isinstance(value, EpochRecord):
            records.append(value)

    outcome = SupervisedRun(prepare(recipe), RunPlaces()).train(hear)
    return next(found for found in outcome.results.values() if found), records


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])  # five workers leave two gradients over at the end of an epoch
@pytest.mark.parametrize("rule", ["safe", "softsync", "plain", "scaled", "delay-compensated"])
def test_every_rule_gives_the_bits_of_the_plain_loop(rule, ranks):
    recipe = SMALL.with_options(staleness_rule=rule, ranks=ranks)
    found, _ = run(recipe)
    order = in_turn(PUSHES, masters=1, workers=ranks - 1)
    assert found["weights_sha256"] == reference(prepare(recipe), [order] * 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "momentum"},
        {"optimizer": "nesterov", "clip": 0.05},
        {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1},
        {"optimizer": "adam", "lr": 0.01, "staleness_rule": "softsync"},
        {"model": "bn-mlp:300", "dropout": 0.2},
        {"schedule": "cosine", "warmup_epochs": 0.5, "staleness_rule": "softsync", "optimizer": "momentum"},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_optimizers_buffers_and_schedules(changes):
    recipe = SMALL.with_options(**changes)
    found, _ = run(recipe)
    assert found["weights_sha256"] == reference(prepare(recipe), [in_turn(PUSHES, 1, 3)] * 2)


def test_the_number_of_masters_changes_nothing():
    hashes = {run(SMALL.with_options(masters=masters, ranks=3 + masters, optimizer="adam"))[0]["weights_sha256"]
              for masters in (1, 2, 4)}  # fmt: skip
    assert len(hashes) == 1


@pytest.mark.parametrize("deal", ["static", "dynamic"])
@pytest.mark.parametrize("order", ["free", "round-robin"])
def test_every_sample_is_used_once_an_epoch(deal, order):
    _, records = run(SMALL.with_options(deal=deal, order=order, masters=2, ranks=5))
    for record in records:
        assert sorted(batch for _, batch, *_ in record.pushes) == list(range(PUSHES))
        assert sum(entry["samples"] for entry in record.ranks) == 90
        assert [entry["samples"] for entry in record.ranks[:2]] == [0, 0]


def test_a_free_run_is_repeated_bit_by_bit(tmp_path):
    recipe = SMALL.with_options(order="free", deal="dynamic", masters=2, ranks=6)
    found, records = run(recipe)
    lines = ["epoch,rank,batch"]
    for record in records:
        lines += [f"{record.metrics['epoch']},{rank},{batch}" for rank, batch, *_ in record.pushes]
    (tmp_path / "pushes.csv").write_text("\n".join(lines))
    again, told = run(recipe.with_options(order=str(tmp_path / "pushes.csv")))
    assert again["weights_sha256"] == found["weights_sha256"]
    assert [record.pushes for record in told] == [record.pushes for record in records]


def test_staleness_is_what_the_order_makes_it():
    _, records = run(SMALL)
    (first, _) = (record.metrics["staleness_counts"] for record in records)
    assert first == [1, 1, PUSHES - 2]  # two workers start together with the first; then always two others in between


def test_a_bound_drops_what_is_too_stale():
    _, records = run(SMALL.with_options(max_staleness="1:drop", staleness_rule="plain"))
    for record in records:
        dropped = [staleness for _, _, staleness, applied, _ in record.pushes if not applied]
        assert dropped
        assert min(dropped) > 1
        assert all(staleness <= 1 for _, _, staleness, applied, _ in record.pushes if applied)
        assert record.metrics["drops"] == len(dropped) == sum(entry["drops"] for entry in record.ranks)


def test_contributions_are_the_workers_and_sum_to_one():
    _, records = run(SMALL)
    for record in records:
        contributions = [[parameter[0] for parameter in rank] for rank in record.shares]
        assert contributions[0] == [0.0] * 4
        assert [sum(column) for column in zip(*contributions, strict=True)] == pytest.approx([1.0] * 4)


def test_divergence_names_staleness_and_the_rule():
    with pytest.raises(RankFailed, match=r"loss became (.|\n)*staleness(.|\n)*--staleness-rule safe"):
        run(
            SMALL.with_options(
                staleness_rule="plain", model="linear", data="synthetic:regression,rows=90,features=3", lr=1e30
            )
        )


def test_torch_modules_train():
    recipe = SMALL.with_options(engine="torch", model="bn-mlp:300", epochs=1)
    (found, _), (again, _) = run(recipe), run(recipe)
    assert found["weights_sha256"] == again["weights_sha256"]


def replacement(position: int) -> AsyncArena:
    """A rank that joins when that round is done; in its epoch rank 3 has pushed once."""
    job = prepare(SMALL)
    model = job.model()
    sections = plan_sections(model, job.shared_optimizer, job.extent())
    with closing(Segment.create(sections.nbytes)) as segment:
        shared = ArenaState(segment, sections, SMALL.ranks.count)
    protocol.first_view(shared.words, range(SMALL.ranks.count), SMALL.ranks.count, position)
    setup = set_up(model, async_options_of(job, model), job.optimizer, PUSHES, SMALL.ranks.count)
    epoch = -(-position // 2)
    setup.async_buffers.log[0] = Entry(PUSH, 3, 0, 0, 2, 0, 1, 8)
    setup.async_buffers.words[ORDERED] = token(epoch, 1)
    setup.async_buffers.gradients[3] = 1.0
    setup.async_buffers.words[DONE] = token(epoch, WHOLE)
    member = Member(shared.words, 2, SMALL.ranks.count, crowded=True)
    return AsyncArena(SyncArena(shared, member, model, job.optimizer), shared, member, model, setup)


@pytest.mark.parametrize("position", [1, 2, 3, 4])
def test_who_joins_when_an_epoch_is_done_knows_which(position):
    """It may be the one that tells what was contributed; and it must leave with the others, if they were asked to."""
    strategy = replacement(position)
    assert strategy.contributions()[3, :, 0] == pytest.approx([1.0] * 4)
    assert not strategy.halts_after(position)
    strategy._async_buffers.words[DONE] = token(-(-position // 2), HALTED)
    assert strategy.halts_after(position)
    assert not strategy.halts_after(position + 2), "an end of another epoch"
