"""The loop. Every rank runs it, from the first step to the last; what it finds is the same on all of them.

    unisono.run(lambda world: train(world, job), job.recipe.ranks, on_report=...)

Rank 0 reports one record an epoch to whoever started it (`rundir.py` writes them down) and returns the summary.
"""

import hashlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from unisono.data.loader import Loader
from unisono.data.shards import shards_of_rank
from unisono.errors import UnisonoError
from unisono.resources import pss_bytes
from unisono.rng import generator
from unisono.strategies import make
from unisono.strategies.base import TIMES
from unisono.train.early_stop import EarlyStop
from unisono.train.evaluate import evaluate
from unisono.train.job import Job
from unisono.train.weights import Weights, save
from unisono.world import World


def train(world: World, job: Job, weights: Path | None) -> dict[str, Any]:
    """Trains; rank 0 puts the weights into the file `weights`. The result is the same on every rank, but for times."""
    with threadpool_limits(job.recipe.threads, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        return _train(world, job, weights)


def _train(world: World, job: Job, weights: Path | None) -> dict[str, Any]:
    recipe, plan, data, comm = job.recipe, job.plan, job.dataset, world.comm
    model = job.model()
    strategy = make(comm, model, job.optimizer, plan.shards, recipe.allreduce)
    strategy.start(generator(recipe.seed, "init"))
    loader = Loader(plan, data.train_x, data.train_y)
    stopper = EarlyStop(recipe.target_accuracy, recipe.patience)
    part = "validation" if len(data.validation_x) else "test"
    number, train_s, first_sync_s, stopped = 0, 0.0, 0.0, ""
    times = np.zeros(len(TIMES))
    metrics: dict[str, Any] = {}
    for epoch in range(1, recipe.epochs + 1):
        order = plan.order(epoch - 1)
        loss_sum, correct, samples = 0.0, 0.0, 0
        spent = np.zeros(len(TIMES))
        comm.barrier()
        begun = time.perf_counter()
        for step in range(plan.steps_per_epoch):
            number += 1
            count = plan.batch_samples(step)
            live = -(-count // plan.shard_size)
            loading = time.perf_counter()
            groups = loader.groups(order, step, strategy.share(live))
            loaded = time.perf_counter()

            def noise(shard: int, epoch: int = epoch, step: int = step) -> np.random.Generator:
                return generator(recipe.seed, "dropout", epoch - 1, step, shard)

            last = step == plan.steps_per_epoch - 1
            found = strategy.step(groups, live, count, job.lr(number), noise, shares=last)
            spent += loaded - loading, found.compute_s, found.wait_s, found.update_s
            first_sync_s = first_sync_s or found.wait_s + found.update_s
            if not math.isfinite(found.loss_sum):
                raise UnisonoError(
                    f"the loss became {found.loss_sum} in epoch {epoch}, step {step + 1}"
                    + (f"; the weights of epoch {epoch - 1} are kept" if epoch > 1 else ""),
                    hint=f"lower --lr ({recipe.lr:g}), or use --clip 1 or --warmup-epochs 1",
                )
            loss_sum, correct, samples = loss_sum + found.loss_sum, correct + found.correct, samples + count
        comm.barrier()
        epoch_s = time.perf_counter() - begun
        train_s += epoch_s
        times += spent
        metrics = {"epoch": epoch, "epoch_s": epoch_s, "samples_per_s": samples / epoch_s, "lr": job.lr(number)}
        metrics |= {"train_loss": loss_sum / samples, "train_accuracy": correct / samples}
        if epoch % recipe.eval_every == 0 or epoch == recipe.epochs:
            score = evaluate(comm, model, *data.part(part))
            if score is not None:
                metrics |= {f"{part}_loss": score.loss, f"{part}_accuracy": score.accuracy}
                if stopper.reached(score.accuracy):
                    stopped = f"{part} accuracy {score.accuracy:.4f} reached {recipe.target_accuracy:g}"
        rows = comm.gather(spent)
        if rows is not None:
            dealt = [
                sum(plan.shard_samples(step, k) for k in shards_of_rank(live, comm.size, r)) for r in range(comm.size)
            ]
            shares = strategy.contributions(dealt)
            world.report({"metrics": metrics, "ranks": rows.tolist(), "shares": shares.tolist()})
        # After every epoch, so that a run which fails later leaves the last good ones. Nobody changes the parameters
        # meanwhile: the next update needs this rank.
        if comm.rank == 0 and weights is not None:
            params = model.layout.views(strategy.params[: model.layout.length])
            save(Weights(params, model.buffers_layout.views(strategy.buffers)), weights)
        if stopped:
            break
    tested = evaluate(comm, model, data.test_x, data.test_y)
    sha256 = hashlib.sha256(strategy.params[: model.layout.length].tobytes() + strategy.buffers.tobytes()).hexdigest()
    memory = np.array([pss_bytes()])
    comm.all_reduce(memory)
    return {
        **{name: metrics[name] for name in ("train_loss", "train_accuracy")},
        "test_loss": None if tested is None else tested.loss,
        "test_accuracy": None if tested is None else tested.accuracy,
        "epochs": metrics["epoch"],
        "steps": number,
        "samples": metrics["epoch"] * sum(plan.batch_samples(step) for step in range(plan.steps_per_epoch)),
        "train_s": train_s,
        "first_sync_s": first_sync_s,
        **dict(zip(TIMES, times.tolist(), strict=True)),
        "stopped_early": stopped,
        "peak_memory_bytes": int(memory[0]),
        "weights_sha256": sha256,
    }
