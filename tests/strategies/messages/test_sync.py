"""Replicas: all ranks agree with each other, and with `sync` up to rounding, whatever the algorithm."""

import hashlib

import numpy as np
import pytest

import unisono
from support.strategies.arena_cases import EPOCHS, batches
from unisono.comm.allreduce import ALGORITHMS
from unisono.data.loader import Loader
from unisono.data.shards import ShardPlan
from unisono.models.base import Model
from unisono.models.nets import build
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator
from unisono.strategies.arena.spec import make_sync_arena
from unisono.strategies.arena.state import ArenaExtent
from unisono.strategies.base import Strategy
from unisono.strategies.messages.spec import make_sync_messages

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 12)).astype(np.float32)
Y = RNG.integers(0, 4, 100)
PLAN = ShardPlan(100, 30, 6, seed=1)


def made(
    world: unisono.World, model: Model, options: OptimizerOptions, extent: ArenaExtent, allreduce: str
) -> Strategy:
    rng = generator(1, "init")
    if allreduce == "arena":
        return make_sync_arena(world.comm, model, options, extent, rng)
    return make_sync_messages(world.comm, model, options, extent, allreduce, rng)


def train(world: unisono.World, allreduce: str) -> dict:
    model = build("bn-mlp:9", 12, 4)
    extent = ArenaExtent(
        world.size, PLAN.shards, (PLAN.live(0), PLAN.live(PLAN.steps_per_epoch - 1)), PLAN.steps_per_epoch
    )
    options = OptimizerOptions("momentum", lr=0.1, clip=1.0)
    strategy = made(world, model, options, extent, allreduce)
    losses = [strategy.step(batch).loss_sum for batch in batches(PLAN, Loader(PLAN, X, Y), 0.1)]
    strategy.evaluate(len(losses) + 1, 0, lambda block: (0.0, 0.0), lambda table: None)
    params = strategy.params[: model.layout.length].copy()
    return {
        "params": params,
        "buffers": strategy.buffers.copy(),
        "losses": losses,
        "sha": hashlib.sha256(params.tobytes() + strategy.buffers.tobytes()).hexdigest(),
        "shares": strategy.contributions(),
        "samples": [entry["samples"] for entry in strategy.times(EPOCHS)],
        "sums": strategy.epoch_sums(),
    }


@pytest.mark.parametrize("allreduce", [*ALGORITHMS, "native"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_replicas_agree_with_each_other_and_nearly_with_sync(allreduce, ranks):
    (reference,) = unisono.run(lambda world: train(world, "arena"), 1)
    found = unisono.run(lambda world: train(world, allreduce), ranks)
    assert len({entry["sha"] for entry in found}) == 1
    np.testing.assert_allclose(found[0]["params"], reference["params"], atol=2e-6)
    np.testing.assert_allclose(found[0]["buffers"], reference["buffers"], atol=2e-6)
    np.testing.assert_allclose(found[0]["losses"], reference["losses"], rtol=1e-5)


@pytest.mark.parametrize("allreduce", ["arena", "ring"])
def test_contributions_add_up_to_one_and_agree(allreduce):
    found = unisono.run(lambda world: train(world, allreduce), 4)
    shares = found[0]["shares"]
    assert shares.shape == (4, len(build("bn-mlp:9", 12, 4).layout.names), 3)
    np.testing.assert_allclose(shares[:, :, 0].sum(axis=0), 1.0, atol=1e-5)
    assert (shares[:, :, 1] >= np.abs(shares[:, :, 0]) - 1e-6).all()  # |<g, G>| <= |g| |G|
    others = unisono.run(lambda world: train(world, "native"), 4)[0]["shares"]
    # All but the bias before batch norm: its gradient is zero but for rounding, and shares of nothing are noise.
    real = [index for index in range(shares.shape[1]) if index != 1]
    np.testing.assert_allclose(shares[:, real], others[:, real], atol=1e-3)


@pytest.mark.parametrize("allreduce", ["arena", "ring"])
def test_what_ranks_did_is_told_by_rank_and_for_all(allreduce):
    """An epoch is three batches of 30 (six shards of 5) and one of 10 (two shards)."""
    found = unisono.run(lambda world: train(world, allreduce), 4)[0]
    assert found["samples"] == [3 * 10 + 5, 3 * 10 + 5, 3 * 5, 3 * 5]
    assert found["sums"][0] == pytest.approx(sum(found["losses"][-4:]))
    assert 0 < found["sums"][1] <= 100


@pytest.mark.parametrize("allreduce", ["arena", "ring"])
def test_scores_that_one_rank_writes_are_known_to_all(allreduce):
    """Early stopping is decided from them, by every rank."""

    def work(world: unisono.World) -> list:
        model = build("mlp:4", 12, 4)
        extent = ArenaExtent(world.size, PLAN.shards, (PLAN.live(0),), PLAN.steps_per_epoch, blocks=3)
        strategy = made(world, model, OptimizerOptions("sgd", lr=0.1), extent, allreduce)

        def tell(table: np.ndarray) -> None:
            strategy.scores[1] = 0.5, 0.25, 1.0

        strategy.evaluate(1, 3, lambda block: (block, 1.0), tell)
        return strategy.scores[1].tolist()

    assert unisono.run(work, 3) == [[0.5, 0.25, 1.0]] * 3
