"""Asynchronous training in round-robin order, in one process: the same bits, without the price of taking turns.

    found = train_in_turn(prepare(recipe, dataset)); found.accuracy, found.staleness, found.weights_sha256

The one idea: with the order of the pushes fixed, staleness and weights are a matter of the recipe, not of processes. So
a table of hundreds of cells need not start 16 processes for each of them, which on two cores mostly wait for each
other: the sequencer, the rules and the workers' copies are those of the package (`strategies/asynchronous/`), walked
through one push after the other. `staleness.py accuracy --check 8` runs every eighth cell with real ranks, too, and
compares the weights.

Limits: round-robin and static deals, NumPy models without buffers and without dropout; no momentum.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from threadpoolctl import threadpool_limits

from unisono.data.loader import Loader
from unisono.errors import UnisonoError
from unisono.models.base import Model
from unisono.optim import make
from unisono.rng import generator
from unisono.storage.weights import Weights
from unisono.strategies.arena.state import padded
from unisono.strategies.asynchronous.batch_assignment import BatchAssignment
from unisono.strategies.asynchronous.push_update import ClippingAndMomentum, Places, PushUpdate, numbers_of
from unisono.strategies.asynchronous.sequencer import Sequencer
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.strategies.base import NotFinite
from unisono.training.job import Job


@final
@dataclass(frozen=True)
class Found:
    """What came of a run."""

    accuracy: float
    """On the test part, at the end."""
    staleness: float
    """The mean over all pushes."""
    weights_sha256: str


def train_in_turn(job: Job) -> Found:
    """A `NotFinite` if it diverges, as with ranks."""
    recipe = job.recipe
    model = job.model()
    if (
        recipe.strategy.order != "round-robin"
        or recipe.strategy.deal != "static"
        or model.buffers_layout.length
        or recipe.model.dropout
    ):
        raise UnisonoError("only --order round-robin with --deal static, without dropout and batch norm")
    with threadpool_limits(recipe.ranks.threads, user_api="blas"), np.errstate(all="ignore"):
        params, stale = _train(job, model)
        model.bind(params, np.zeros(0, np.float32))
        scores = model.evaluate(job.dataset.test_x[None], job.dataset.test_y[None])
    sha256 = Weights.of(model, params, np.zeros(0, np.float32)).sha256()
    return Found(float(scores.correct[0]) / len(job.dataset.test_x), stale, sha256)


def _train(job: Job, model: Model) -> tuple[np.ndarray, float]:
    """The parameters at the end, and the mean staleness."""
    recipe, terms, pushes = job.recipe, async_options_of(job, model), job.updates
    params = np.zeros(padded(model.layout.length), np.float32)
    model.init(params[: model.layout.length], np.zeros(0, np.float32), generator(recipe.learning.seed, "init"))
    ranks = range(recipe.strategy.masters, recipe.ranks.count)
    copies, models = {rank: params.copy() for rank in ranks}, {rank: job.model() for rank in ranks}
    for rank in ranks:
        models[rank].bind(copies[rank], np.zeros(0, np.float32))
    state = [np.zeros_like(params) for _ in make(job.optimizer).state_names]
    collected = np.zeros_like(params) if terms.rule.collects else None
    applying = PushUpdate(terms, job.optimizer, len(params), state, collected)
    clipping = ClippingAndMomentum(terms, None)
    loader, rows = Loader(job.plan, job.dataset.train_x, job.dataset.train_y), np.zeros((1, len(params)), np.float32)
    stale = 0
    for epoch in range(1, recipe.learning.epochs + 1):
        order, sequencer = job.plan.order(epoch - 1), Sequencer(terms.rules(epoch))
        deal, current = BatchAssignment(terms.deal, range(pushes), ranks), params
        hands = {rank: deal.next(rank) for rank in ranks}
        for rank in ranks:
            sequencer.greet(rank, 0)
            copies[rank][...] = params
        while active := {rank for rank, batch in hands.items() if batch is not None}:
            rank = sequencer.choose(active, active)
            assert rank is not None
            batch, copy = hands[rank], copies[rank]
            assert batch is not None
            (group,) = loader.groups(order, 0, range(batch, batch + 1))
            count = group.x.shape[1]
            found = models[rank].loss_and_grad(group.x, group.y, rows, 1.0 / count)
            if not np.isfinite(found.loss_sum[0]):
                raise NotFinite(batch, float(found.loss_sum[0]), terms.cure(sequencer.staleness(rank)))
            clipping.apply(rows[0])
            entry = sequencer.push(rank, batch, 0, count)
            stale += entry.staleness
            applying.apply(entry, rows[0], Places(current, copy, copy), numbers_of(entry, epoch, pushes, terms.group))
            current, hands[rank] = copy, deal.next(rank)
        if (entry := sequencer.flush()) is not None:
            applying.apply(
                entry, rows[0], Places(current, current, params), numbers_of(entry, epoch, pushes, terms.group)
            )
            current = params
        if current is not params:
            params[...] = current
    return params, stale / (pushes * recipe.learning.epochs)
