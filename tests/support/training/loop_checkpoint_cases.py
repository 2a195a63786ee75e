"""A program with a loop of its own that keeps snapshots, for the tests, and for launchers to start:

mpirun -n 2 python loop_checkpoint_cases.py FOLDER ask 4
torchrun --nproc-per-node 2 loop_checkpoint_cases.py FOLDER die 6

Rank 1 asks for an end after the fourth step, or dies after the sixth, unless torchrun has started it again.
"""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unisono
from unisono.world import World

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.standard_normal((150, 12)).astype(np.float32))
Y = (X[:, 0] > 0).long()
STEPS = 12  # three epochs of 150 samples in batches of 40


@dataclass
class Program:
    """One that a user might write: batch norm, dropout, clipping, a scheduler, an average of the weights, a log."""

    folder: Path
    every: str = "1steps"
    log: Path | None = None
    after_step: Callable[[World, int], None] = lambda world, step: None
    lr: float = 0.01

    def __call__(self, world: World) -> dict[str, Any]:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(12, 80), torch.nn.BatchNorm1d(80), torch.nn.ReLU(), torch.nn.Dropout(0.2),
            torch.nn.Linear(80, 2),
        )  # fmt: skip
        model, optimizer = world.share(model, torch.optim.AdamW(model.parameters(), lr=self.lr), clip=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
        average = torch.optim.swa_utils.AveragedModel(model)
        own: dict[str, Any] = {"losses": []}
        keeper = unisono.keep(world, self.folder, every=self.every, scheduler=scheduler, average=average, own=own)
        for batch in world.batches((X, Y), batch_size=40, epochs=3):
            for x, y in batch:
                world.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            scheduler.step()
            average.update_parameters(model)
            own["losses"].append(batch.loss)
            if self.log is not None and world.first:
                with open(self.log, "a") as file:
                    print(json.dumps([len(own["losses"]), batch.loss, optimizer.param_groups[0]["lr"]]), file=file)
            self.after_step(world, len(own["losses"]))
        return {
            "sha": sha_of(model), "average": sha_of(average), "lr": scheduler.get_last_lr(), "losses": own["losses"],
            "resumed": keeper.resumed_from, "catching up": keeper.catching_up,
        }  # fmt: skip


def sha_of(model: Any) -> str:
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def main(folder: Path, what: str, at: int) -> None:
    def act(world: World, step: int) -> None:
        if (world.rank, step) == (1, at) and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            os.kill(os.getpid(), signal.SIGTERM if what == "ask" else signal.SIGKILL)

    with unisono.join(timeout_s=60.0) as world:
        found = Program(folder, after_step=act)(world)
        if world.first:
            print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
