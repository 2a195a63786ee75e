"""local: any number of ranks equals replicas that walk in one process; a step at a time it is sync."""

from dataclasses import replace

import numpy as np
import pytest

import unisono
from support.strategies.arena_cases import (
    CLASSES,
    EPOCHS,
    FEATURES,
    SAMPLES,
    Replica,
    X,
    Y,
    batches,
    digest,
    plain_tree,
)
from unisono.comm.base import Communicator
from unisono.comm.wrappers import Counted
from unisono.data.loader import Loader
from unisono.data.shards import ShardPlan
from unisono.models.base import Model
from unisono.models.nets import build
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator
from unisono.strategies.arena.spec import make_sync_arena
from unisono.strategies.arena.state import ArenaExtent
from unisono.strategies.base import Strategy
from unisono.strategies.local.local_steps import LocalSteps
from unisono.strategies.local.strategy import join_local, make_local_replica
from unisono.strategies.local.sync_schedule import SyncSchedule
from unisono.strategies.wire_type import wire_type

PLAN = ShardPlan(SAMPLES, 24, 8, seed=3)  # 203 = 8 x 24 + 11: the last batch has three shards of 3 and one of 2

CASES = {
    "mlp momentum": ("mlp:40,30", {"name": "momentum", "lr": 0.1}, {"dropout": 0.25}),
    "bn-mlp adam clip": ("bn-mlp:30", {"name": "adam", "lr": 0.01, "clip": 0.05}, {}),
    "bn-mlp momentum": ("bn-mlp:30", {"name": "momentum", "lr": 0.1, "clip": 1.0}, {}),
    "bn-mlp lars": ("bn-mlp:24", {"name": "lars", "lr": 1.0, "weight_decay": 1e-4}, {}),
    "mlp sgd": ("mlp:40", {"name": "sgd", "lr": 0.1, "weight_decay": 0.01}, {}),
}


def model_of(case: str) -> Model:
    spec, _, more = CASES[case]
    return build(spec, FEATURES, CLASSES, **more)


def walk(replica: Replica, rows: np.ndarray, number: int, noise: np.random.Generator) -> float:
    """A step of a replica alone."""
    grad = np.zeros((1, len(replica.params)), np.float32)
    found = replica.model.loss_and_grad(X[rows][None], Y[rows][None], grad, 1.0 / len(rows), lambda _: noise)
    replica.update(grad[0], number)
    replica.buffers[:] = found.new_buffers[0]
    return float(found.loss_sum[0])


def reference(case: str, plan: ShardPlan, every: int, after: int = 0) -> str:
    """Replicas one after the other, each with vectors of its own, and a mean of those that had anything to do."""
    replicas = [
        Replica.fresh(model_of(case), OptimizerOptions(**CASES[case][1]), plan.seed) for _ in range(plan.shards)
    ]
    params, buffers = replicas[0].params.copy(), replicas[0].buffers.copy()
    seen, losses = np.zeros(plan.shards), np.zeros(plan.shards)
    found: list[float] = []
    for epoch in range(EPOCHS):
        order = plan.order(epoch)
        for step in range(plan.steps_per_epoch):
            for shard, replica in enumerate(replicas):
                rows = plan.shard_indices(order, step, shard)
                if len(rows):
                    number = epoch * plan.steps_per_epoch + step + 1
                    noise = generator(plan.seed, "dropout", epoch, step, shard)
                    losses[shard] += walk(replica, rows, number, noise)
                    seen[shard] += len(rows)
            met = epoch < after or (step + 1) % every == 0 or step == plan.steps_per_epoch - 1
            if met:
                there = [replica for replica, count in zip(replicas, seen, strict=True) if count]
                weights = [np.float32(count * (1 / seen.sum())) for count in seen if count]
                params -= plain_tree([w * (params - r.params) for w, r in zip(weights, there, strict=True)])
                if buffers.size:
                    buffers[:] = plain_tree([replica.buffers for replica in there]) * np.float32(1 / len(there))
                for replica in replicas:
                    replica.params[:], replica.buffers[:] = params, buffers
                total = 0.0
                for loss in losses[: len(there)]:
                    total += loss
                found.append(total)
                seen[:] = losses[:] = 0.0
    return digest(params[: model_of(case).layout.length], buffers, found)


def train(strategy: Strategy, case: str, plan: ShardPlan, lr: float) -> list[float]:
    """The losses of the steps that found any."""
    found = (strategy.step(batch).loss_sum for batch in batches(plan, Loader(plan, X, Y), lr))
    return [loss for loss in found if loss]


def extent_of(plan: ShardPlan, size: int, states: int = 0) -> ArenaExtent:
    lives = tuple({plan.live(0), plan.live(plan.steps_per_epoch - 1)})
    return ArenaExtent(size, plan.shards, lives, plan.steps_per_epoch, states=states)


def local(comm: Communicator, case: str, sync_schedule: SyncSchedule, allreduce: str, wire: str) -> Strategy:
    options = OptimizerOptions(**CASES[case][1])
    local_steps = LocalSteps(model_of(case), model_of(case), options, wire_type(wire))
    extent = extent_of(sync_schedule.plan, comm.size, local_steps.state_vectors)
    rng = generator(sync_schedule.plan.seed, "init")
    if allreduce == "arena":
        return join_local(comm, local_steps, sync_schedule, extent, rng)
    return make_local_replica(comm, local_steps, sync_schedule, extent, allreduce, rng)


def outcome(
    world: unisono.World, case: str, sync_schedule: SyncSchedule, allreduce: str = "arena", wire: str = "fp32"
) -> dict:
    comm = Counted(world.comm)
    strategy = local(comm, case, sync_schedule, allreduce, wire)
    options = OptimizerOptions(**CASES[case][1])
    losses = train(strategy, case, sync_schedule.plan, options.lr)
    length = strategy._local_steps.layout.length
    params = strategy.params[:length].copy()
    found = {
        "digest": digest(params, strategy.buffers, losses), "params": params, "buffers": strategy.buffers.copy(),
        "losses": losses, "sent_bytes": comm.sent_bytes, "length": len(strategy.params),
    }  # fmt: skip
    strategy.evaluate(1000, 0, lambda block: (0.0, 0.0), lambda table: None)
    return found | {
        "shares": strategy.contributions(),
        "sums": strategy.epoch_sums(),
        "samples": [entry["samples"] for entry in strategy.times(EPOCHS)],
    }


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_ranks_ends_with_the_bits_of_the_reference(case):
    expected = reference(case, PLAN, every=4)
    for ranks in (1, 2, 3, 4, 7, 8):
        found = unisono.run(lambda world: outcome(world, case, SyncSchedule(PLAN, 4)), ranks)
        assert {entry["digest"] for entry in found} == {expected}, ranks


@pytest.mark.parametrize(("every", "after"), [(1, 0), (3, 1), (8, 0), (100, 0)])
def test_other_rhythms(every, after):
    """Of nine steps: all meet; the second epoch alone is local; the ragged end walks alone; once an epoch."""
    expected = reference("mlp momentum", PLAN, every, after)
    for ranks in (1, 3):
        found = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, every, after)), ranks)
        assert {entry["digest"] for entry in found} == {expected}


@pytest.mark.parametrize(("batch", "shards"), [(50, 8), (10, 8), (7, 3), (1, 1)])
def test_other_batches(batch, shards):
    """50 in 8: the last replica has one sample a batch; 10 in 8: three replicas have none at all."""
    plan = ShardPlan(SAMPLES, batch, shards, seed=1)
    expected = reference("mlp momentum", plan, every=5)
    for ranks in {1, min(2, shards), shards}:
        found = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(plan, 5)), ranks)
        assert {entry["digest"] for entry in found} == {expected}


def test_other_rhythms_are_other_results():
    """Else the tests above could not fail."""
    assert (
        len({reference("mlp momentum", PLAN, *sync_schedule) for sync_schedule in ((1,), (3,), (4,), (4, 1), (100,))})
        == 5
    )


@pytest.mark.parametrize("spec", ["mlp:40", "bn-mlp:30"])
def test_a_step_at_a_time_with_plain_sgd_it_is_sync_but_for_rounding(monkeypatch, spec):
    monkeypatch.setitem(CASES, "plain", (spec, {"name": "sgd", "lr": 0.1, "weight_decay": 0.01}, {}))

    def synchronous(world: unisono.World) -> dict:
        model, options = model_of("plain"), OptimizerOptions(**CASES["plain"][1])
        rng = generator(PLAN.seed, "init")
        strategy = make_sync_arena(world.comm, model, options, extent_of(PLAN, world.size), rng)
        losses = train(strategy, "plain", PLAN, options.lr)
        return {"params": strategy.params[: model.layout.length].copy(), "losses": losses} | {
            "buffers": strategy.buffers.copy()
        }

    (expected,) = unisono.run(synchronous, 1)
    (found,) = unisono.run(lambda world: outcome(world, "plain", SyncSchedule(PLAN, 1)), 1)
    for name in ("params", "buffers"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=2e-6)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-5)
    (apart,) = unisono.run(lambda world: outcome(world, "plain", SyncSchedule(PLAN, 4)), 1)
    assert np.abs(apart["params"] - expected["params"]).max() > 1e-3  # else the above could not fail


def test_what_ranks_did_is_told():
    """An epoch is eight batches of 24 (eight shards of 3) and one of 11 (three shards of 3 and one of 2)."""
    found = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, 4)), 4)[0]
    assert found["samples"] == [8 * 6 + 3, 8 * 6 + 3, 8 * 6 + 3, 8 * 6 + 2]  # the last one walks alone, in four shards
    assert len(found["losses"]) == 2 * 3
    assert found["sums"][0] == pytest.approx(sum(found["losses"][3:]))
    assert 0 < found["sums"][1] <= SAMPLES
    np.testing.assert_allclose(found["shares"][:, :, 0].sum(axis=0), 1.0, atol=1e-5)


def test_losses_of_steps_that_met_in_an_earlier_epoch_are_not_counted_again():
    found = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, 4, after=1)), 2)[0]
    assert len(found["losses"]) == 9 + 3
    assert found["sums"][0] == pytest.approx(sum(found["losses"][9:]))


@pytest.mark.parametrize(("ranks", "allreduce"), [(1, "ring"), (3, "ring"), (3, "native"), (2, "halving")])
def test_over_messages_it_is_the_same_but_for_the_order_of_sums(ranks, allreduce):
    case = "bn-mlp momentum"
    (expected,) = unisono.run(lambda world: outcome(world, case, SyncSchedule(PLAN, 4)), 1)
    found = unisono.run(lambda world: outcome(world, case, SyncSchedule(PLAN, 4), allreduce), ranks)
    assert len({entry["digest"] for entry in found}) == 1
    for name in ("params", "buffers"):
        np.testing.assert_allclose(found[0][name], expected[name], rtol=0, atol=2e-6)
    assert found[0]["sums"] == pytest.approx(expected["sums"], rel=1e-5)
    # Replicas stay where their state is: at the ragged end the first four of eight walk, and the last rank has none.
    assert found[0]["samples"] == [[203], [8 * 12 + 11, 8 * 12], [8 * 9 + 9, 8 * 9 + 2, 8 * 6]][ranks - 1]


def test_over_messages_in_pairs_it_is_the_same_to_the_last_bit():
    """Recursive doubling adds as the canonical tree does, where ranks are a power of two and divide the replicas; all
    but buffers, of which this network has none."""
    expected = reference("mlp momentum", PLAN, every=4)
    for ranks in (1, 2, 4, 8):
        found = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, 4), "doubling"), ranks)
        assert {entry["digest"] for entry in found} == {expected}, ranks


@pytest.mark.parametrize(("every", "wire", "nbytes"), [(2, "fp32", 4), (8, "fp32", 4), (8, "bf16", 2)])
def test_what_is_sent_falls_with_the_steps_between_meetings_and_with_the_bits(every, wire, nbytes):
    plan = replace(PLAN, drop_last=True)  # eight steps
    found = unisono.run(lambda world: outcome(world, "mlp sgd", SyncSchedule(plan, every), "ring", wire), 2)
    # A ring of two sends the vector once, in two halves; contributions do not go through messages of ours.
    assert [entry["sent_bytes"] for entry in found] == [EPOCHS * 8 // every * nbytes * found[0]["length"]] * 2


def test_movements_in_16_bits_have_the_same_bits_on_any_ranks_and_are_nearly_those_in_32():
    (exact,) = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, 4)), 1)
    rounded = [
        entry["digest"]
        for ranks in (1, 2, 3, 8)
        for entry in unisono.run(
            lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, 4), wire="bf16"), ranks
        )
    ]
    assert len(set(rounded)) == 1
    assert rounded[0] != exact["digest"]
    (again,) = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, 4), wire="bf16"), 1)
    sent = unisono.run(lambda world: outcome(world, "mlp momentum", SyncSchedule(PLAN, 4), "ring", "bf16"), 2)
    assert sent[0]["digest"] == sent[1]["digest"]
    model = model_of("mlp momentum")
    start = np.zeros(model.layout.length, np.float32)
    model.init(start, np.zeros(0, np.float32), generator(PLAN.seed, "init"))
    moved = np.abs(exact["params"] - start).max()
    for found in (again, sent[0]):
        np.testing.assert_allclose(found["params"], exact["params"], rtol=0, atol=moved / 2**8)
