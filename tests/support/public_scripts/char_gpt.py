"""A tiny GPT that learns to spell one paragraph, letter by letter, on several processes.

    torchrun --standalone --nproc-per-node 2 char_gpt.py --epochs 3

Its one idea: it is what people write around a Trainer with callbacks. A checkpoint holds the optimizer's state, too,
and each epoch seeds its own random numbers. So a run that was interrupted ends as one that was not. Limits: as small as
a GPT can be.
"""

import argparse
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

TEXT = """
The ferry leaves at seven, whether or not the fog has lifted. On board there is a stove, a cat that belongs to nobody,
and a captain who counts the passengers twice: once when they come, and once when they go. So far the two numbers have
always agreed, but for one Sunday in March, when there was a passenger more than before, and she weighed seven pounds.
"""


class Letters(Dataset):
    """Every stretch of `length` letters, and the same one letter later."""

    def __init__(self, text, length):
        self.alphabet = sorted(set(text))
        self.length = length
        self.numbers = torch.tensor([self.alphabet.index(letter) for letter in text])

    def __len__(self):
        return len(self.numbers) - self.length

    def __getitem__(self, start):
        stretch = self.numbers[start : start + self.length + 1]
        return stretch[:-1], stretch[1:]


@dataclass
class Size:
    letters: int
    length: int = 19
    layers: int = 2
    heads: int = 3
    width: int = 33
    dropout: float = 0.1


class Attention(nn.Module):
    """Each letter looks at those before it."""

    def __init__(self, size):
        super().__init__()
        self.heads, self.dropout = size.heads, size.dropout
        self.inward = nn.Linear(size.width, 3 * size.width)
        self.outward = nn.Linear(size.width, size.width)

    def forward(self, x):
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.inward(x).chunk(3, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.outward(seen.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(size.width), Attention(size), nn.Dropout(size.dropout))
        self.thinking = nn.Sequential(
            nn.LayerNorm(size.width), nn.Linear(size.width, 4 * size.width), nn.GELU(),
            nn.Linear(4 * size.width, size.width), nn.Dropout(size.dropout),
        )  # fmt: skip

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.thinking(x)


class GPT(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.letter = nn.Embedding(size.letters, size.width)
        self.place = nn.Parameter(0.02 * torch.randn(size.length, size.width))
        self.layers = nn.Sequential(*(Layer(size) for _ in range(size.layers)))
        self.last = nn.Sequential(nn.LayerNorm(size.width), nn.Linear(size.width, size.letters, bias=False))

    def forward(self, letters, targets):
        scores = self.last(self.layers(self.letter(letters) + self.place))
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def optimizer(self, rate, decay):
        """Weights of linear layers decay; biases, norms and embeddings do not."""
        decaying = {module.weight for module in self.modules() if isinstance(module, nn.Linear)}
        groups = [
            {"params": [value for value in self.parameters() if value in decaying], "weight_decay": decay},
            {"params": [value for value in self.parameters() if value not in decaying], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


class Trainer:
    """Runs epochs, and calls who wants to know of "batch_end" and "epoch_end"."""

    def __init__(self, net, data, args):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.args, self.net = args, net
        self.model = DistributedDataParallel(net)
        self.optimizer = net.optimizer(args.rate, args.decay)
        self.sampler = DistributedSampler(data, seed=args.seed)
        self.batches = DataLoader(data, args.batch_size, sampler=self.sampler)
        self.callbacks = defaultdict(list)
        self.epoch = self.step = 0
        self.loss = self.norm = torch.zeros(())

    def on(self, event, callback):
        self.callbacks[event].append(callback)

    def tell(self, event):
        for callback in self.callbacks[event]:
            callback(self)

    def run(self):
        self.model.train()
        while self.epoch < self.args.epochs:
            self.sampler.set_epoch(self.epoch)
            torch.manual_seed(self.args.seed + self.size * self.epoch + self.rank)  # of dropout
            for letters, targets in self.batches:
                self.loss = self.model(letters, targets)
                self.optimizer.zero_grad(set_to_none=True)
                self.loss.backward()
                self.norm = nn.utils.clip_grad_norm_(self.net.parameters(), self.args.clip)
                self.optimizer.step()
                self.step += 1
                self.tell("batch_end")
            self.epoch += 1
            self.tell("epoch_end")


class MeanLoss:
    """Prints the mean loss of an epoch, over all ranks."""

    def __init__(self):
        self.losses = []

    def batch_end(self, trainer):
        self.losses.append(trainer.loss.detach())

    def epoch_end(self, trainer):
        mean = torch.stack(self.losses).mean()
        self.losses = []
        dist.all_reduce(mean)
        if trainer.rank == 0:
            mean, norm = mean.item() / trainer.size, trainer.norm.item()
            print(f"epoch {trainer.epoch}, step {trainer.step}: loss {mean:.4f}, norm {norm:.3f}", flush=True)


class Checkpoints:
    """What it takes to go on, in a file."""

    def __init__(self, path):
        self.path = path

    def epoch_end(self, trainer):
        if trainer.rank == 0:
            begun = self.path.with_suffix(".begun")
            state = {"model": trainer.net.state_dict(), "optimizer": trainer.optimizer.state_dict()}
            torch.save(state | {"epochs_run": trainer.epoch, "step": trainer.step}, begun)
            begun.replace(self.path)
        dist.barrier()

    def load(self, trainer):
        if not self.path.exists():
            return
        found = torch.load(self.path, weights_only=True)
        trainer.net.load_state_dict(found["model"])
        trainer.optimizer.load_state_dict(found["optimizer"])
        trainer.epoch, trainer.step = found["epochs_run"], found["step"]
        if trainer.rank == 0:
            print(f"rank 0 goes on after epoch {trainer.epoch}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Trains a tiny GPT on several processes.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=11)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1009)
    parser.add_argument("--snapshot", type=Path, default=Path("char_gpt.pt"))
    args = parser.parse_args()

    dist.init_process_group(backend="gloo")
    torch.manual_seed(args.seed)
    size = Size(letters=len(set(TEXT)))
    trainer = Trainer(GPT(size), Letters(TEXT, size.length), args)
    loss, checkpoints = MeanLoss(), Checkpoints(args.snapshot)
    checkpoints.load(trainer)
    trainer.on("batch_end", loss.batch_end)
    trainer.on("epoch_end", loss.epoch_end)
    trainer.on("epoch_end", checkpoints.epoch_end)
    trainer.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
