"""A rank of `nodes.py`: trains each contender in turn, as often as asked, and prints a line of JSON for each turn.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 python benchmarks/nodes_worker.py '{...}'

unisono's contenders are whole runs of a recipe, as `torchrun -m unisono train` would make them. DDP is a loop as one
would write it for speed: data in memory, no loss exchanged between steps.
"""

import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from unisono.comm.base import Communicator
from unisono.environment.os_environ import detect
from unisono.launch.connect import connect
from unisono.launch.torch_group import default_group
from unisono.messages.rank_reports import EpochRecord, Report
from unisono.recipe import Recipe
from unisono.runs.launched_training import train_launched
from unisono.runs.supervised_training import RunPlaces
from unisono.training.job import Job, load_data, prepare
from unisono.world import World

_ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid}


def sent_bytes() -> int:
    """By this machine so far, with all headers."""
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def run_unisono(comm: Communicator, job: Job) -> dict[str, float]:
    """The first epoch warms up, the others count."""
    rates: list[float] = []
    sent: list[int] = []

    def hear(record: Report) -> None:
        if isinstance(record, EpochRecord):
            rates.append(record.metrics["samples_per_s"])
            sent.append(sent_bytes())

    train_launched(World(comm, hear), job, RunPlaces())
    steps = job.plan.steps_per_epoch * (job.recipe.learning.epochs - 1)
    if len(rates) < 2:
        return {}
    return {"samples_per_s": float(np.median(rates[1:])), "sent_bytes_per_step": (sent[-1] - sent[0]) / steps}


def network_of(job: Job) -> nn.Module:
    """The recipe's, as one would write it in torch."""
    kind, _, sizes = job.recipe.model.name.partition(":")
    layers: list[nn.Module] = []
    width = job.dataset.features
    for size in map(int, sizes.split(",")):
        layers += [nn.Linear(width, size), *([nn.BatchNorm1d(size)] if kind == "bn-mlp" else [])]
        layers.append(_ACTIVATIONS[job.recipe.model.activation or "relu"]())
        layers += [nn.Dropout(job.recipe.model.dropout)] if job.recipe.model.dropout else []
        width = size
    return nn.Sequential(*layers, nn.Linear(width, job.dataset.outputs))


def run_ddp(comm: Communicator, job: Job) -> dict[str, float]:
    with default_group(comm, "cpu", 1):
        torch.manual_seed(0)
        spent, sent = _time_ddp(comm, job, DistributedDataParallel(network_of(job)))
    plan = job.plan
    samples, steps = plan.steps_per_epoch * plan.global_batch, plan.steps_per_epoch * len(spent)
    return {"samples_per_s": samples / float(np.median(spent)), "sent_bytes_per_step": sent / steps}


def _time_ddp(comm: Communicator, job: Job, model: nn.Module) -> tuple[list[float], int]:
    """Seconds of each epoch but the first, bytes sent in all of them."""
    plan, recipe = job.plan, job.recipe
    x, y = torch.from_numpy(np.ascontiguousarray(job.dataset.train_x)), torch.from_numpy(job.dataset.train_y.copy())
    share = plan.global_batch // comm.size
    if recipe.learning.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning.lr)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=recipe.learning.lr, momentum=0.9)
    spent, before = [], 0
    for number in range(recipe.learning.epochs):
        order = torch.from_numpy(plan.order(number))
        comm.barrier()
        if number == 1:
            before = sent_bytes()
        begun = time.perf_counter()
        for step in range(plan.steps_per_epoch):
            start = step * plan.global_batch + comm.rank * share
            rows = order[start : start + share]
            loss: Tensor = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        comm.barrier()
        spent.append(time.perf_counter() - begun)
    return spent[1:], sent_bytes() - before


def round_trip_s(comm: Communicator, host: str) -> float:
    """Of a byte over TCP, the median of many; known to rank 0."""
    if comm.rank:
        comm.barrier()
        with socket.create_connection((host, 29600), timeout=30) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while line.recv(1):
                line.send(b"!")
        return 0.0
    with socket.create_server((host, 29600)) as server:
        comm.barrier()
        line, _ = server.accept()
    with line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        taken = []
        for _ in range(100):
            begun = time.perf_counter()
            line.send(b"?")
            line.recv(1)
            taken.append(time.perf_counter() - begun)
    return float(np.median(taken))


def main(asked: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    placement = detect()
    with connect(placement, "auto", 120.0) as comm:
        found_s = round_trip_s(comm, (placement.address or "").rpartition(":")[0])
        if comm.rank == 0:
            print(json.dumps({"round_trip_s": found_s}), flush=True)
        recipe = Recipe.from_options(**asked["recipe"], ranks=comm.size, drop_last=True)
        data = load_data(recipe)
        data = replace(data, test_x=data.test_x[:0], test_y=data.test_y[:0])
        data = replace(data, train_x=data.train_x[: asked["rows"]], train_y=data.train_y[: asked["rows"]])
        jobs = {
            "sync": prepare(recipe, data),
            "local": prepare(recipe.with_options(strategy="local", sync_every=16), data),
        }
        for _ in range(asked["rounds"]):
            for name in ("sync", "ddp", "local"):
                found = run_ddp(comm, jobs["sync"]) if name == "ddp" else run_unisono(comm, jobs[name])
                if comm.rank == 0:
                    parameters = jobs["sync"].model().layout.length
                    print(json.dumps({"contender": name, "parameter_bytes": 4 * parameters, **found}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
