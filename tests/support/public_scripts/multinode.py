"""A small net on made-up points, on one machine or several. It goes on where an interrupted run has stopped.

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint node0:29400 multinode.py 50 10

Its one idea: it is what people write for torchrun. Rank 0 saves a snapshot now and then; every start looks for one
first. Limits: all machines must see the snapshot's file.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def points(count, seed=7):
    """Inputs at random; what to predict is a bent function of them, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 13, generator=generator)
    mixed = inputs @ torch.randn(13, 3, generator=generator) / 13**0.5
    return TensorDataset(inputs, torch.sin(mixed) + 0.05 * torch.randn(count, 3, generator=generator))


class Trainer:
    def __init__(self, net, data, batch_size, save_every, snapshot):
        self.rank, self.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.sampler = DistributedSampler(data)
        self.batches = DataLoader(data, batch_size, sampler=self.sampler)
        self.save_every, self.snapshot = save_every, snapshot
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        self.epochs_run = 0
        if snapshot.exists():
            self.load()
        self.model = DistributedDataParallel(net)

    def load(self):
        found = torch.load(self.snapshot, weights_only=True)
        self.net.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])
        self.epochs_run = found["epochs_run"]
        if self.local_rank == 0:  # once on each machine
            print(f"rank {self.rank} goes on after epoch {self.epochs_run}", flush=True)

    def save(self):
        """Under another name first: who is interrupted here leaves the last snapshot whole."""
        if self.rank == 0:
            begun = self.snapshot.with_suffix(".begun")
            state = {"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(state | {"epochs_run": self.epochs_run}, begun)
            begun.replace(self.snapshot)
        dist.barrier()

    def run_batch(self, inputs, targets):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run_epoch(self, epoch):
        """The loss, averaged over all batches of all ranks."""
        self.sampler.set_epoch(epoch)
        losses = torch.stack([self.run_batch(inputs, targets) for inputs, targets in self.batches])
        total = torch.stack([losses.sum(), torch.tensor(float(len(losses)))])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def run(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            loss = self.run_epoch(epoch)
            self.epochs_run = epoch + 1
            if self.epochs_run % self.save_every == 0 or self.epochs_run == epochs:
                self.save()
                if self.rank == 0:
                    print(f"epoch {self.epochs_run}: loss {loss:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Trains a small net on several processes.")
    parser.add_argument("epochs", type=int, help="how many in all, those before an interruption included")
    parser.add_argument("save_every", type=int, help="epochs from one snapshot to the next")
    parser.add_argument("--batch-size", type=int, default=17, help="points of a batch, on each process")
    parser.add_argument("--snapshot", type=Path, default=Path("snapshot.pt"))
    args = parser.parse_args()

    dist.init_process_group(backend="gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(13, 31), nn.Tanh(), nn.Linear(31, 3))
    Trainer(net, points(211), args.batch_size, args.save_every, args.snapshot).run(args.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
