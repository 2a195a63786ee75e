"""One process that does what masters and workers do, in the plainest way: whole vectors, copies, a list of versions.

The order of pushes is given (rank, batch), a batch of -1 being a greeting; staleness, rules, momentum and clipping are
written out here once more.
"""

from collections.abc import Sequence

import numpy as np

from unisono.data.loader import Loader
from unisono.optim import make
from unisono.optim.gradient_norms import clip_factor
from unisono.recipe import Recipe
from unisono.rng import generator
from unisono.storage.weights import Weights
from unisono.strategies.arena.state import padded
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.strategies.asynchronous.staleness_rules import VARIANCE
from unisono.training.job import Job

SMALL = Recipe.from_options(
    strategy="async", order="round-robin", ranks=4, masters=1, model="mlp:300", batch_size=8, epochs=2,
    data="synthetic:classes=4,rows=90,features=8,test_rows=60", optimizer="sgd", lr=0.3,
)  # fmt: skip
"""Twelve pushes an epoch, the last one of two samples; 3,904 parameters: four blocks."""
PUSHES = 12


def reference(job: Job, orders: Sequence[Sequence[tuple[int, int]]]) -> str:
    """The hash of the weights after epochs with these pushes."""
    recipe, model = job.recipe, job.model()
    terms, optimizer = async_options_of(job, model), make(job.optimizer)
    params, buffers = np.zeros(padded(model.layout.length), np.float32), np.zeros(model.buffers_layout.length, "f4")
    copy, own_buffers = np.zeros_like(params), buffers.copy()
    model.init(params[: model.layout.length], buffers, generator(recipe.learning.seed, "init"))
    model.bind(copy, own_buffers)
    state = [np.zeros_like(params) for _ in optimizer.state_names]
    loader, rows = Loader(job.plan, job.dataset.train_x, job.dataset.train_y), np.zeros((1, len(params)), np.float32)
    updates: list[int] = []
    for epoch, order in enumerate(orders):
        samples_in = job.plan.order(epoch)
        ranks = sorted({rank for rank, _ in order})
        seen = {rank: (params.copy(), buffers.copy(), 0) for rank in ranks}
        velocity = {rank: np.zeros_like(params) for rank in ranks}
        version, collected, weight = 0, np.zeros_like(params), 0

        def update(gradient: np.ndarray, number: int, staleness: int) -> None:
            lr = job.lr(number) * terms.rule.rate(staleness, terms.workers)
            updates.append(number)
            optimizer.update(params, gradient, state, lr, len(updates))

        ordinal, last = -1, len(order) - sum(batch < 0 for _, batch in order) - 1
        for rank, batch in order:
            if batch < 0:
                seen[rank], velocity[rank] = (params.copy(), buffers.copy(), version), np.zeros_like(params)
                continue
            ordinal += 1
            copy[:], own_buffers[:], stamp = seen[rank]
            (group,) = loader.groups(samples_in, 0, range(batch, batch + 1))
            count = group.x.shape[1]

            def noise(shard: int, epoch: int = epoch, batch: int = batch) -> np.random.Generator:
                return generator(recipe.learning.seed, "dropout", epoch, 0, batch)

            found = model.loss_and_grad(group.x, group.y, rows, 1.0 / count, noise)
            gradient = rows[0].copy()
            if terms.clip:
                gradient *= np.float32(clip_factor(float(np.sqrt(np.dot(gradient, gradient))), terms.clip))
            if terms.momentum:
                velocity[rank] = velocity[rank] * np.float32(terms.momentum) + gradient
                gradient = gradient + np.float32(terms.momentum) * velocity[rank] if terms.nesterov else velocity[rank]
            number = epoch * job.updates + ordinal + 1
            buffers[: found.new_buffers.shape[1]] = found.new_buffers[0]
            if terms.rule.compensates:
                gradient = gradient + np.float32(VARIANCE) * (gradient * ((params - copy) * gradient))
            if not terms.rule.collects:
                update(gradient, number, version - stamp)
                version += 1
            else:
                collected, weight = collected + gradient * np.float32(count), weight + count
                if ordinal % terms.workers == terms.workers - 1 or ordinal == last:
                    complete = ordinal % terms.workers == terms.workers - 1
                    whole = weight if complete else max(weight, terms.workers * int(job.recipe.learning.batch_size))
                    update(collected * np.float32(1.0 / whole), number, 0)
                    version, collected, weight = version + 1, np.zeros_like(params), 0
            seen[rank] = params.copy(), buffers.copy(), version
    return Weights.of(model, params, buffers).sha256()


def in_turn(pushes: int, masters: int, workers: int) -> list[tuple[int, int]]:
    """Round-robin over batches that are dealt statically."""
    share, more = divmod(pushes, workers)
    queues = []
    for worker in range(workers):
        start = worker * share + min(worker, more)
        queues.append(list(range(start, start + share + (worker < more))))
    return [
        (masters + worker, queue[turn])
        for turn in range(share + 1)
        for worker, queue in enumerate(queues)
        if turn < len(queue)
    ]
