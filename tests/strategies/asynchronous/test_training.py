"""Asynchronous training, in the arena and over messages: the bits of a plain loop that does the same; every sample."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import unisono
from support.strategies.async_reference import PUSHES, SMALL, in_turn, reference
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.training.job import prepare
from unisono.training.trainer import train

pytestmark = pytest.mark.usefixtures("no_price")

Run: TypeAlias = Callable[[Recipe], tuple[dict[str, Any], list[EpochRecord]]]
"""What a run found, and the records of its epochs."""


def in_the_arena(recipe: Recipe) -> tuple[dict[str, Any], list[EpochRecord]]:
    records: list[EpochRecord] = []
    outcome = SupervisedRun(prepare(recipe), RunPlaces()).train(lambda rank, value: keep(records, value))
    return next(found for found in outcome.results.values() if found), records


def over_messages(recipe: Recipe) -> tuple[dict[str, Any], list[EpochRecord]]:
    """All ranks find the same."""
    records: list[EpochRecord] = []
    job, on_report = prepare(recipe), lambda rank, value: keep(records, value)
    found = unisono.run(lambda world: train(world, job, None), recipe.ranks.count, on_report=on_report)
    own = dict.fromkeys(("peak_memory_bytes", "first_sync_s"), 0)
    assert all(one | own == found[0] | own for one in found)
    return found[0], records


def keep(records: list[EpochRecord], value: Any) -> None:
    if isinstance(value, EpochRecord):
        records.append(value)


WAYS: dict[str, Run] = {"arena": in_the_arena, "messages": over_messages}


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest) -> Run:
    return WAYS[request.param]


def check_bits(way: str, recipe: Recipe) -> None:
    masters = recipe.strategy.masters
    order = in_turn(PUSHES, masters, recipe.ranks.count - masters)
    found, _ = WAYS[way](recipe)
    assert found["weights_sha256"] == reference(prepare(recipe), [order] * 2)


@pytest.mark.parametrize(
    ("way", "masters", "workers"),
    [
        ("arena", 1, 1), ("arena", 1, 2), ("arena", 1, 3),
        ("arena", 1, 5),  # which leave two gradients over at the end of an epoch
        ("messages", 1, 3), ("messages", 2, 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rule", ["safe", "softsync", "plain", "scaled", "delay-compensated"])
def test_every_rule_gives_the_bits_of_the_plain_loop(way, masters, workers, rule):
    check_bits(way, SMALL.with_options(staleness_rule=rule, masters=masters, ranks=masters + workers))


@pytest.mark.parametrize(
    ("way", "changes"),
    [
        ("arena", {"optimizer": "momentum"}),
        ("arena", {"optimizer": "nesterov", "clip": 0.05}),
        ("arena", {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1}),
        ("arena", {"optimizer": "adam", "lr": 0.01, "staleness_rule": "softsync"}),
        ("arena", {"model": "bn-mlp:300", "dropout": 0.2}),
        ("arena", {"schedule": "cosine", "warmup_epochs": 0.5, "staleness_rule": "softsync", "optimizer": "momentum"}),
        ("messages", {"optimizer": "nesterov", "clip": 0.05, "ranks": 2}),
        ("messages", {"optimizer": "adam", "lr": 0.01}),
        ("messages", {"optimizer": "adam", "lr": 0.01, "staleness_rule": "softsync"}),
        ("messages", {"staleness_rule": "softsync", "ranks": 6}),  # two gradients are left over here as well
        ("messages", {"model": "bn-mlp:300", "dropout": 0.2, "optimizer": "momentum", "masters": 2}),
    ],
    ids=str,
)
def test_optimizers_buffers_and_schedules(way, changes):
    check_bits(way, SMALL.with_options(**changes))


@pytest.mark.parametrize("deal", ["static", "dynamic"])
@pytest.mark.parametrize("order", ["free", "round-robin"])
def test_every_sample_is_used_once_an_epoch_and_contributions_are_the_workers(run, deal, order):
    _, records = run(SMALL.with_options(deal=deal, order=order, masters=2, ranks=5))
    assert len(records) == 2
    for record in records:
        assert sorted(batch for _, batch, *_ in record.pushes) == list(range(PUSHES))
        assert sum(entry["samples"] for entry in record.ranks) == 90
        assert [entry["samples"] for entry in record.ranks[:2]] == [0, 0]
        contributions = [[parameter[0] for parameter in rank] for rank in record.shares]
        assert contributions[:2] == [[0.0] * 4] * 2
        assert [sum(column) for column in zip(*contributions, strict=True)] == pytest.approx([1.0] * 4)


def test_a_bound_drops_what_is_too_stale(run):
    _, records = run(SMALL.with_options(max_staleness="1:drop", staleness_rule="plain"))
    for record in records:
        dropped = [staleness for _, _, staleness, applied, _ in record.pushes if not applied]
        assert 0 < len(dropped) < PUSHES
        assert min(dropped) > 1
        assert all(staleness <= 1 for _, _, staleness, applied, _ in record.pushes if applied)
        assert record.metrics["drops"] == len(dropped) == sum(entry["drops"] for entry in record.ranks)


def test_a_free_run_is_repeated_bit_by_bit(run, tmp_path):
    recipe = SMALL.with_options(order="free", deal="dynamic", masters=2, ranks=6)
    found, records = run(recipe)
    again, told = run(recipe.with_options(order=recorded(tmp_path, records)))
    assert again["weights_sha256"] == found["weights_sha256"]
    assert [record.pushes for record in told] == [record.pushes for record in records]


def recorded(folder: Path, records: list[EpochRecord]) -> str:
    """The file of an order."""
    lines = ["epoch,rank,batch"]
    for record in records:
        lines += [f"{record.metrics['epoch']},{rank},{batch}" for rank, batch, *_ in record.pushes]
    (folder / "pushes.csv").write_text("\n".join(lines))
    return str(folder / "pushes.csv")


def test_staleness_is_what_the_order_makes_it(run):
    _, records = run(SMALL)
    (first, _) = (record.metrics["staleness_counts"] for record in records)
    assert first == [1, 1, PUSHES - 2]  # two workers start together with the first; then always two others in between


def test_the_number_of_masters_changes_nothing():
    recipes = [SMALL.with_options(masters=masters, ranks=3 + masters, optimizer="adam") for masters in (1, 2, 4)]
    assert len({in_the_arena(recipe)[0]["weights_sha256"] for recipe in recipes}) == 1


def test_torch_modules_train():
    recipe = SMALL.with_options(engine="torch", model="bn-mlp:300", epochs=1)
    (found, _), (again, _) = in_the_arena(recipe), in_the_arena(recipe)
    assert found["weights_sha256"] == again["weights_sha256"]
