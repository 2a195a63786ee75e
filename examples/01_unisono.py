"""`01_plain_pytorch.py` on any number of processes: six lines differ. The weights do not depend on the number.

python examples/01_unisono.py                                                              one process
torchrun --standalone --nproc-per-node 2 --local-ranks-filter 0 examples/01_unisono.py        two; one prints
mpirun -n 2 python examples/01_unisono.py                                                     the same
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import data

import unisono

world = unisono.join()
torch.set_num_threads(1)  # the number of threads changes the bits
torch.manual_seed(0)
inputs = torch.randn(1000, 20)
labels = inputs[:, :4].argmax(1)
dataset = data.TensorDataset(inputs, labels)

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer = world.share(model, optimizer)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

for _ in range(4):
    for batch in world.batches(dataset, batch_size=64):
        optimizer.zero_grad()
        for x, y in batch:
            world.backward(F.cross_entropy(model(x), y))
        optimizer.step()
    scheduler.step()

model.eval()
with torch.no_grad():
    accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
checksum = sum(p.double().abs().sum().item() for p in model.parameters())
print(f"accuracy {accuracy:.3f}, checksum {checksum!r}")
