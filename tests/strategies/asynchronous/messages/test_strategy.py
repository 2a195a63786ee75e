"""Asynchronous training over messages: errors reach everybody; the rest is in `../test_training.py`."""

from typing import Any

import pytest

import unisono
from support.strategies.async_reference import PUSHES, SMALL, in_turn, reference
from unisono.errors import RankFailed
from unisono.launch.connect import connect_gloo
from unisono.training.job import prepare
from unisono.training.trainer import train
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")


def over_gloo(world: World) -> dict[str, Any]:
    with World(connect_gloo(world.comm), world.report) as gloo:
        return train(gloo, prepare(SMALL.with_options(masters=2, ranks=4)), None)


def test_over_gloo():
    job = prepare(SMALL.with_options(masters=2, ranks=4))
    hashes = {found["weights_sha256"] for found in unisono.run(over_gloo, 4)}
    assert hashes == {reference(job, [in_turn(PUSHES, 2, workers=2)] * 2)}


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
