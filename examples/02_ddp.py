"""A small network with DistributedDataParallel. `02_unisono.py` is the same training without the special cases.

torchrun --standalone --nproc-per-node 2 examples/02_ddp.py
"""

import torch
import torch.distributed as dist
import torch.distributed.nn  # import before a group exists: its functions keep the default group
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH = 64

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(1000, 20)
labels = inputs[:, :4].argmax(1)
dataset = TensorDataset(inputs, labels)
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=GLOBAL_BATCH // size, sampler=sampler)

model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(4):
    sampler.set_epoch(epoch)
    total = torch.zeros(2)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += torch.tensor([loss.item() * len(x), len(x)])
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")

if rank == 0:
    with torch.no_grad():
        accuracy = (model.module(inputs).argmax(1) == labels).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
# A reference to the group keeps its threads alive. They must end before the interpreter, or it may abort.
del model
dist.barrier()
dist.destroy_process_group()
