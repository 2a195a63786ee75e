"""Trains with synchronised batch norm, killing ranks in the middle of exchanges as planned.

    runs = [({"model": "bn-mlp:12", "ranks": 3}, [[1, 4, "before"]])]
    unisono.run(lambda world: run_all(runs), 1, start="fork")     # in a process of its own that need not import torch

A kill is (rank, which of its exchanges, before or after it arrived). Ranks are forked, so
a patch here reaches them; each kill strikes once, whoever replaces its victim.
"""

import mmap
import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np

import unisono.models.torch.build  # noqa: F401  # torch, once for all
from unisono.messages.rank_reports import EpochRecord, Report
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies.arena.shard_exchange import ShardExchange
from unisono.training.job import prepare

ROWS, HERE = ShardExchange.rows, ShardExchange._all_here
FIRED = mmap.mmap(-1, 4096)


def plan(kills: list[list[Any]]) -> None:
    FIRED[: len(kills)] = bytes(len(kills))
    counts = {"before": 0, "after": 0}

    def strike(exchange: ShardExchange, when: str) -> None:
        counts[when] += 1
        for number, kill in enumerate(kills):
            if kill == [exchange._member.slot, counts[when], when] and not FIRED[number]:
                FIRED[number] = 1
                os.kill(os.getpid(), signal.SIGKILL)

    def rows(exchange: ShardExchange, label: int, values: list[np.ndarray]) -> np.ndarray:
        strike(exchange, "before")
        return ROWS(exchange, label, values)

    def all_here(exchange: ShardExchange) -> bool:
        if counts["after"] < counts["before"]:
            strike(exchange, "after")
        return HERE(exchange)

    ShardExchange.rows, ShardExchange._all_here = rows, all_here


def outcome(options: dict[str, Any], kills: list[list[Any]]) -> dict[str, Any]:
    plan(kills)
    job, exchanges_s = prepare(Recipe.from_options(**options)), []

    def on_report(rank: int, record: Report) -> None:
        if isinstance(record, EpochRecord):
            exchanges_s.append(min(entry["exchange_s"] for entry in record.ranks))

    ended = SupervisedRun(job, RunPlaces()).train(on_report)
    (found, *_) = (result for result in ended.results.values() if result)
    return {
        "weights": found["weights_sha256"],
        "scores": [found[name] for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy")],
        "engine": job.recipe.model.engine,
        "fired": [bool(FIRED[number]) for number in range(len(kills))],
        "takeovers": ended.takeovers,
        "timed": bool(exchanges_s) and min(exchanges_s) > 0,
    }


def run_all(runs: Sequence[tuple[dict[str, Any], list[list[Any]]]]) -> list[dict[str, Any]]:
    """Of each run (options, kills): what came out."""
    return [outcome(options, kills) for options, kills in runs]
