"""The user's own loop in a script that some launcher starts; the first rank prints what came out.

python own_loop.py          torchrun --standalone --nproc-per-node 2 own_loop.py          mpirun -n 2 python own_loop.py
"""

import json

import torch

import unisono
from support.loop.loop_cases import Case, train

if __name__ == "__main__":
    torch.set_num_threads(1)
    with unisono.join(timeout_s=60.0) as world:
        found = train(world, Case(clip=1.0))
        if world.first:
            print(json.dumps([world.size, found]))
