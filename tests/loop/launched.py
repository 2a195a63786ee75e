"""The user's own loop in a script that some launcher starts; the first rank prints what came out.

python launched.py          torchrun --standalone --nproc-per-node 2 launched.py          mpirun -n 2 python launched.py
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from loop_cases import Case, train

import unisono

if __name__ == "__main__":
    torch.set_num_threads(1)
    with unisono.join(timeout_s=60.0) as world:
        found = train(world, Case(clip=1.0))
        if world.first:
            print(json.dumps([world.size, found]))
