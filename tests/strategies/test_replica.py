"""Replicas: all ranks agree with each other, and with `sync` up to rounding, whatever the algorithm."""

import hashlib

import numpy as np
import pytest

import unisono
from unisono.comm.allreduce import ALGORITHMS
from unisono.data.loader import Loader
from unisono.data.shards import Plan
from unisono.models.nets import build
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator
from unisono.strategies import make

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 12)).astype(np.float32)
Y = RNG.integers(0, 4, 100)
PLAN = Plan(100, 30, 6, seed=1)


def train(world: unisono.World, allreduce: str) -> dict:
    model = build("bn-mlp:9", 12, 4)
    strategy = make(world.comm, model, OptimizerOptions("momentum", lr=0.1, clip=1.0), PLAN.shards, allreduce)
    strategy.start(generator(1, "init"))
    loader, losses = Loader(PLAN, X, Y), []
    for epoch in range(3):
        order = PLAN.order(epoch)
        for step in range(PLAN.steps_per_epoch):
            samples = PLAN.batch_samples(step)
            live = -(-samples // PLAN.shard_size)
            groups = loader.groups(order, step, strategy.share(live))
            losses.append(strategy.step(groups, live, samples, 0.1, shares=True).loss_sum)
    counts = [sum(PLAN.shard_samples(step, k) for k in range(live) if k % world.size == r) for r in range(world.size)]
    params = strategy.params[: model.layout.length].copy()
    return {
        "params": params,
        "buffers": strategy.buffers.copy(),
        "losses": losses,
        "sha": hashlib.sha256(params.tobytes() + strategy.buffers.tobytes()).hexdigest(),
        "shares": strategy.contributions([max(1, count) for count in counts]),
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
