"""`02_ddp.py` with unisono: no sampler, no division of the batch, no wrapper, no sum of losses.

torchrun --standalone --nproc-per-node 2 examples/02_unisono.py
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import unisono

GLOBAL_BATCH = 64

with unisono.join() as world:
    torch.manual_seed(0)
    inputs = torch.randn(1000, 20)
    labels = inputs[:, :4].argmax(1)
    dataset = TensorDataset(inputs, labels)

    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = world.share(model, optimizer, clip=1.0)

    for epoch in world.epochs(4):
        total = 0.0
        for batch in world.batches(dataset, batch_size=GLOBAL_BATCH):
            for x, y in batch:
                world.backward(F.cross_entropy(model(x), y))
            optimizer.step()
            total += batch.loss * batch.samples  # over all ranks
        if world.first:
            print(f"epoch {epoch}: loss {total / len(dataset):.4f}")

    if world.first:
        with torch.no_grad():
            accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
        print(f"accuracy {accuracy:.3f}")
