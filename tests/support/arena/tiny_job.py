"""A job that takes a millisecond: two steps, a round that closes the epoch, and a final one.

The one idea: gradients depend on the samples of a shard *and* on the parameters, losses on all parameters: a
contribution that is lost, doubled, stale or dealt in another way shows in the numbers of every later round.

    job = tiny_job(ranks=3, optimizer=OptimizerOptions("adam", lr=0.1)); model = Tiny()
"""

from typing import Any, final

import numpy as np

from unisono.data.dataset import Dataset
from unisono.data.shards import ShardPlan
from unisono.models.base import Layout, Model, ShardSums
from unisono.optim.learning_rate import ScheduleOptions
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.training.job import Job

SAMPLES, BATCH, SHARDS, FEATURES = 17, 9, 5, 3  # steps of 9 and 8 samples: shards of 2, the last one of 1


@final
class Tiny(Model):
    """Gradients a * w + b, where a and b come from a shard's samples. Three blocks: a chunk for each of three ranks."""

    layout = Layout({"w": (2, 1024), "b": (517,)})
    buffers_layout = Layout({"mean": (137,)})
    classifies = True

    def init(self, params: np.ndarray, buffers: np.ndarray, rng: np.random.Generator) -> None:
        params[...], buffers[...] = rng.standard_normal(len(params)), 0.5

    def bind(self, params: np.ndarray, buffers: np.ndarray) -> None:
        self._params, self._buffers = params[: self.layout.length], buffers

    def loss_and_grad(
        self, x: np.ndarray, y: np.ndarray, grads: np.ndarray, scale: float, noise: Any = None
    ) -> ShardSums:
        found, length = self.evaluate(x, y), self.layout.length
        for row, samples in enumerate(x):
            a, b = np.float32(scale * np.abs(samples).sum()), np.float32(scale * samples.sum())
            grads[row, :length] = self._params * a + b
        new = self._buffers * np.float32(0.75) + x.mean(axis=(1, 2))[:, None] * np.float32(0.25)
        return ShardSums(found.loss_sum, found.correct, np.asarray(new))

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> ShardSums:
        size = float(np.square(self._params[::97]).sum()) + float(self._buffers[0])
        losses = np.array([(np.square(samples).sum() + 1.0) * size for samples in x], np.float64)
        return ShardSums(losses, (y > 0).sum(axis=1).astype(np.float64), np.zeros((len(x), 0), np.float32))


def tiny_job(ranks: int, optimizer: OptimizerOptions, snapshots: str = "") -> Job:
    """One epoch; five samples for validation and one for the test."""
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((SAMPLES + 6, FEATURES)).astype(np.float32), rng.integers(0, 2, SAMPLES + 6)
    parts = (slice(0, SAMPLES), slice(SAMPLES, SAMPLES + 5), slice(SAMPLES + 5, None))
    data = Dataset("tiny", *(array[part] for part in parts for array in (x, y)), classes=2, shape=(FEATURES,))
    recipe = Recipe.from_options(ranks=ranks, epochs=1, shards=SHARDS, batch_size=BATCH, snapshot_every=snapshots)
    return Job(recipe, data, ShardPlan(SAMPLES, BATCH, SHARDS, seed=3), optimizer, ScheduleOptions("constant", 0.0))
