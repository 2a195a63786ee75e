"""`03_accelerate.py` with unisono: the batch size is global, and every rank may evaluate the whole test set.

torchrun --standalone --nproc-per-node 2 examples/03_unisono.py
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import unisono

with unisono.join() as world:
    torch.manual_seed(0)
    inputs = torch.randn(1000, 20)
    labels = inputs[:, :4].argmax(1)
    train_set, test_set = TensorDataset(inputs[:800], labels[:800]), TensorDataset(inputs[800:], labels[800:])

    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = world.share(model, optimizer, clip=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)

    for epoch in world.epochs(4):
        model.train()
        for batch in world.batches(train_set, batch_size=64):
            for x, y in batch:
                world.backward(F.cross_entropy(model(x), y))
            optimizer.step()
        scheduler.step()

        model.eval()
        x, y = test_set.tensors
        with torch.no_grad():
            correct = (model(x).argmax(1) == y).sum().item()
        if world.first:
            print(f"epoch {epoch}: accuracy {correct / len(test_set):.3f}")
