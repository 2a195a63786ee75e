"""Cases of the sync strategy, and a plain single-process reference that computes shards one by one."""

import hashlib
from collections.abc import Iterator
from contextlib import closing

import numpy as np

import unisono
from unisono.arena.memory.segment import Segment
from unisono.arena.reduction_tree import BLOCK
from unisono.data.loader import Loader
from unisono.data.shards import ShardPlan
from unisono.models.base import Model
from unisono.models.nets import build
from unisono.optim import make
from unisono.optim.gradient_norms import Scaling, Segments
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart
from unisono.strategies.arena.spec import make_sync_arena
from unisono.strategies.arena.state import ArenaExtent, ArenaState, plan_sections
from unisono.strategies.base import Batch

FEATURES, CLASSES, SAMPLES = 20, 5, 203
RNG = np.random.default_rng(0)
X = RNG.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
Y = RNG.integers(0, CLASSES, SAMPLES)
TARGETS = RNG.standard_normal((SAMPLES, 1)).astype(np.float32)
EPOCHS = 2

CASES = {
    "mlp momentum": ("mlp:40,30", {"name": "momentum", "lr": 0.1}, {"dropout": 0.25}),
    "mlp adam clip": ("mlp:40", {"name": "adam", "lr": 0.01, "clip": 0.05}, {}),
    "bn-mlp adamw": ("bn-mlp", {"name": "adamw", "lr": 0.01}, {}),
    "bn-mlp lars": ("bn-mlp:24", {"name": "lars", "lr": 1.0, "weight_decay": 1e-4, "clip": 1.0}, {}),
    "linear sgd": ("linear", {"name": "sgd", "lr": 0.1, "weight_decay": 0.01}, {}),
    "mlp nesterov": ("mlp:64,64", {"name": "nesterov", "lr": 0.05}, {"dropout": 0.5}),
}


def model_of(case: str):
    spec, _, more = CASES[case]
    return build(spec, FEATURES, 1 if spec == "linear" else CLASSES, **more)


def arena_state(extent: ArenaExtent, model: Model | None = None) -> ArenaState:
    """What ranks have in common, without any rank."""
    model, machines = model or build("linear", 4, 1), extent.machine_layout
    sections = plan_sections(model, OptimizerOptions("sgd", lr=0.1), extent)
    with closing(Segment.create(sections.nbytes)) as segment:
        return ArenaState(segment, sections, extent.size, machines and (machines, model.layout.length))


def digest(params: np.ndarray, buffers: np.ndarray, losses: list[float]) -> str:
    return hashlib.sha256(params.tobytes() + buffers.tobytes() + np.array(losses).tobytes()).hexdigest()


def plain_tree(parts: list[np.ndarray]) -> np.ndarray:
    if len(parts) == 1:
        return parts[0]
    middle = max(2**k for k in range(10) if 2**k < len(parts))
    return plain_tree(parts[:middle]) + plain_tree(parts[middle:])


class Replica:
    """A model with whole vectors of its own, and one update of them."""

    def __init__(self, model: Model, options: OptimizerOptions, params: np.ndarray, buffers: np.ndarray) -> None:
        self.model, self.options, self.params, self.buffers = model, options, params.copy(), buffers.copy()
        model.bind(self.params, self.buffers)
        self.optimizer, layout = make(options), model.layout
        self.state = [np.zeros_like(params) for _ in self.optimizer.state_names]
        segments = Segments(list(zip(layout.offsets, layout.sizes, strict=True)), len(params))
        self.scaling = Scaling(options, segments, [len(shape) > 1 for shape in layout.shapes.values()])
        self.squares = np.zeros((self.scaling.rows, segments.count))

    @classmethod
    def fresh(cls, model: Model, options: OptimizerOptions, seed: int) -> "Replica":
        """As every run starts; the vector of parameters is padded to whole blocks."""
        params = np.zeros(-(-model.layout.length // BLOCK) * BLOCK, np.float32)
        buffers = np.zeros(model.buffers_layout.length, np.float32)
        model.init(params[: model.layout.length], buffers, generator(seed, "init"))
        return cls(model, options, params, buffers)

    def update(self, gradient: np.ndarray, number: int) -> None:
        self.scaling.publish(self.params, gradient, 0, self.squares)
        scale = self.scaling.scale(self.squares, 0, len(self.params))
        self.optimizer.update(self.params, gradient, self.state, self.options.lr, number, scale)


def reference(case: str, plan: ShardPlan) -> str:
    """One process, one shard at a time, one sum along the tree, one update of the whole vector."""
    model, options = model_of(case), OptimizerOptions(**CASES[case][1])
    y = Y if model.classifies else TARGETS
    replica = Replica.fresh(model, options, plan.seed)
    losses, number = [], 0
    for epoch in range(EPOCHS):
        order = plan.order(epoch)
        for step in range(plan.steps_per_epoch):
            grads, sums, news = [], [], []
            for shard in range(plan.shards):
                rows = plan.shard_indices(order, step, shard)
                if not len(rows):
                    continue
                grad = np.zeros((1, len(replica.params)), np.float32)
                noise = generator(plan.seed, "dropout", epoch, step, shard)
                found = model.loss_and_grad(
                    X[rows][None], y[rows][None], grad, 1.0 / plan.batch_samples(step), lambda _, noise=noise: noise
                )
                grads.append(grad[0])
                sums.append(float(found.loss_sum[0]))
                news.append(found.new_buffers[0].copy())
            number += 1
            replica.update(plain_tree(grads), number)
            replica.buffers[:] = plain_tree(news) * np.float32(1.0 / len(news))
            total = 0.0
            for value in sums:
                total += value
            losses.append(total)
    return digest(replica.params[: model.layout.length], replica.buffers, losses)


def batches(plan: ShardPlan, loader: Loader, lr: float) -> Iterator[Batch]:
    """All steps of `EPOCHS` epochs, as a trainer gives them to a strategy."""
    for epoch in range(EPOCHS):
        order = plan.order(epoch)
        for step in range(plan.steps_per_epoch):
            number = epoch * plan.steps_per_epoch + step + 1

            def load(shards: range, order=order, step=step) -> list:
                return loader.groups(order, step, shards)

            def noise(shard: int, epoch: int = epoch, step: int = step) -> np.random.Generator:
                return generator(plan.seed, "dropout", epoch, step, shard)

            live, samples, last = plan.live(step), plan.batch_samples(step), step == plan.steps_per_epoch - 1
            yield Batch(number, epoch + 1, step, live, samples, lr, number, load, noise, shares=last)


def train(world: unisono.World, case: str, plan: ShardPlan, start: ArenaStart = NEW_START) -> str:
    model, options = model_of(case), OptimizerOptions(**CASES[case][1])
    extent = ArenaExtent(
        world.size, plan.shards, tuple({plan.live(0), plan.live(plan.steps_per_epoch - 1)}), plan.steps_per_epoch
    )
    strategy = make_sync_arena(world.comm, model, options, extent, generator(plan.seed, "init"), start)
    loader = Loader(plan, X, Y if model.classifies else TARGETS)
    losses = [strategy.step(batch).loss_sum for batch in batches(plan, loader, options.lr)]
    found = digest(strategy.params[: model.layout.length], strategy.buffers, losses)
    world.comm.barrier()
    strategy.close()
    return found
