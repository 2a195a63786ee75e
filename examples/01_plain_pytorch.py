"""A small network in plain PyTorch, on one process. `01_unisono.py` runs it on many: six lines differ.

python examples/01_plain_pytorch.py
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import data

torch.set_num_threads(1)  # the number of threads changes the bits
torch.manual_seed(0)
inputs = torch.randn(1000, 20)
labels = inputs[:, :4].argmax(1)
dataset = data.TensorDataset(inputs, labels)

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)

for _ in range(4):
    for x, y in data.DataLoader(dataset, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    scheduler.step()

model.eval()
with torch.no_grad():
    accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
checksum = sum(p.double().abs().sum().item() for p in model.parameters())
print(f"accuracy {accuracy:.3f}, checksum {checksum!r}")
