"""`01_unisono.py` with ranks that unisono starts itself: the others take over from one that is killed.

python examples/04_run.py --ranks 4 --epochs 300
pkill -9 -u "$(id -u)" -x unisono-rank2                    meanwhile
python examples/04_run.py --ranks 1 --epochs 300           the same hash
"""

import argparse
import hashlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import data

import unisono


def work(world: unisono.World, epochs: int) -> str:
    """What each rank does; the hash of the weights."""
    torch.set_num_threads(1)  # the number of threads changes the bits
    torch.manual_seed(0)
    inputs = torch.randn(1000, 20)
    labels = inputs[:, :4].argmax(1)
    dataset = data.TensorDataset(inputs, labels)

    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    model, optimizer = world.share(model, optimizer)

    for epoch in world.epochs(epochs):
        for batch in world.batches(dataset, batch_size=64):
            for x, y in batch:
                world.backward(F.cross_entropy(model(x), y))
            optimizer.step()
        if world.first and epoch % 100 == 0:
            print(f"epoch {epoch}: {world.size} ranks, loss {batch.loss:.4f}", flush=True)
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    hashes = unisono.run(lambda world: work(world, options.epochs), ranks=options.ranks)
    print(*{found for found in hashes if found is not None})  # a rank that was killed returns None
