"""Asynchronous training over messages: the bits of the plain loop, as in the arena; errors reach everybody."""

from typing import Any

import pytest

import unisono
from support.strategies.async_reference import PUSHES, SMALL, in_turn, reference
from unisono.errors import RankFailed
from unisono.launch.connect import connect_gloo
from unisono.messages.reports import EpochRecord
from unisono.training.job import Job, prepare
from unisono.training.trainer import train
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")


def run(job: Job, work: Any = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all ranks found, which is the same, and the records of the epochs."""
    records: list[dict[str, Any]] = []
    found = unisono.run(
        work or (lambda world: train(world, job, None)),
        job.recipe.ranks.count,
        on_report=lambda rank, value: records.append(value) if isinstance(value, EpochRecord) else None,
    )
    for one in found:
        assert {**one, "peak_memory_bytes": 0, "first_sync_s": 0} == {
            **found[0], "peak_memory_bytes": 0, "first_sync_s": 0,
        }  # fmt: skip
    return found[0], records


@pytest.mark.parametrize("rule", ["safe", "softsync", "plain", "scaled", "delay-compensated"])
@pytest.mark.parametrize("masters", [1, 2])
def test_every_rule_gives_the_bits_of_the_plain_loop(rule, masters):
    job = prepare(SMALL.with_options(staleness_rule=rule, masters=masters, ranks=3 + masters))
    found, _ = run(job)
    assert found["weights_sha256"] == reference(job, [in_turn(PUSHES, masters, workers=3)] * 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "nesterov", "clip": 0.05, "ranks": 2},
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "adam", "lr": 0.01, "staleness_rule": "softsync"},
        {"staleness_rule": "softsync", "ranks": 6},  # two gradients are left over at the end of an epoch
        {"model": "bn-mlp:300", "dropout": 0.2, "optimizer": "momentum", "masters": 2},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_optimizers_and_buffers(changes):
    job = prepare(SMALL.with_options(**changes))
    found, _ = run(job)
    masters, workers = job.recipe.strategy.masters, job.recipe.ranks.count - job.recipe.strategy.masters
    assert found["weights_sha256"] == reference(job, [in_turn(PUSHES, masters, workers)] * 2)


@pytest.mark.parametrize("deal", ["static", "dynamic"])
@pytest.mark.parametrize("order", ["free", "round-robin"])
def test_every_sample_is_used_once_an_epoch(deal, order):
    _, records = run(prepare(SMALL.with_options(deal=deal, order=order, masters=2, ranks=5)))
    assert len(records) == 2
    for record in records:
        assert sorted(batch for _, batch, *_ in record.pushes) == list(range(PUSHES))
        assert sum(entry["samples"] for entry in record.ranks) == 90
        contributions = [sum(parameter[0] for parameter in rank) / 4 for rank in record.shares]
        assert contributions[:2] == [0.0, 0.0]
        assert sum(contributions) == pytest.approx(1.0)


def test_a_bound_drops_what_is_too_stale():
    _, records = run(prepare(SMALL.with_options(max_staleness="1:drop", staleness_rule="plain")))
    applied = [push for record in records for push in record.pushes if push[3]]
    assert 0 < len(applied) < 2 * PUSHES
    assert max(push[2] for push in applied) <= 1


def test_the_order_of_a_file_is_kept(tmp_path):
    found, records = run(prepare(SMALL.with_options(order="free", deal="dynamic")))
    lines = ["epoch,rank,batch"]
    for record in records:
        lines += [f"{record.metrics['epoch']},{rank},{batch}" for rank, batch, *_ in record.pushes]
    (tmp_path / "pushes.csv").write_text("\n".join(lines))
    again, _ = run(prepare(SMALL.with_options(order=str(tmp_path / "pushes.csv"))))
    assert again["weights_sha256"] == found["weights_sha256"]


def over_gloo(world: World) -> dict[str, Any]:
    with World(connect_gloo(world.comm), world.report) as gloo:
        return train(gloo, prepare(SMALL.with_options(masters=2, ranks=4)), None)


def test_over_gloo():
    job = prepare(SMALL.with_options(masters=2, ranks=4))
    found, _ = run(job, over_gloo)
    assert found["weights_sha256"] == reference(job, [in_turn(PUSHES, 2, workers=2)] * 2)


def test_divergence_reaches_every_rank_with_a_cure():
    job = prepare(
        SMALL.with_options(
            model="linear", data="synthetic:regression,rows=90,features=3", staleness_rule="plain", lr=1e30,
            ranks=5, masters=2,
        )
    )  # fmt: skip

    def work(world: World) -> str:
        with pytest.raises(unisono.UnisonoError) as caught:
            train(world, job, None)
        return str(caught.value)

    told = unisono.run(work, 5)
    assert len(set(told)) == 1
    assert "the loss became" in told[0]
    assert "staleness of" in told[0]
    assert "--staleness-rule safe" in told[0]


def test_a_gradient_of_another_size_is_refused_by_name():
    def work(world: World) -> None:
        train(world, prepare(SMALL.with_options(model="mlp:300" if world.rank else "mlp:301")), None)

    with pytest.raises(
        RankFailed, match=r"ranks disagree on parameters, masters: 3917, 1 on rank 0; 3904, 1 on rank 1"
    ):
        unisono.run(work, 4)
