"""A small network with Hugging Face Accelerate, on the CPU. `03_unisono.py` is the same training.

torchrun --standalone --nproc-per-node 2 examples/03_accelerate.py
"""

import torch
import torch.distributed.nn  # import before a group exists: its functions keep the default group
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(0)
inputs = torch.randn(1000, 20)
labels = inputs[:, :4].argmax(1)
train_set, test_set = TensorDataset(inputs[:800], labels[:800]), TensorDataset(inputs[800:], labels[800:])

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
# Each process takes 32 of every global batch of 32 * processes.
loader = DataLoader(train_set, batch_size=32, shuffle=True)
test_loader = DataLoader(test_set, batch_size=100)
model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)

for epoch in range(4):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    scheduler.step()

    model.eval()
    correct = 0
    for x, y in test_loader:
        with torch.no_grad():
            found, wanted = accelerator.gather_for_metrics((model(x).argmax(1), y))
        correct += (found == wanted).sum().item()
    accelerator.print(f"epoch {epoch}: accuracy {correct / len(test_set):.3f}")

# A reference to the group keeps its threads alive. They must end before the interpreter, or it may abort.
model, optimizer, loader, test_loader = accelerator.free_memory(model, optimizer, loader, test_loader)
accelerator.end_training()
