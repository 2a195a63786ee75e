"""A rank of `backend.py`: all-reduce over gloo, unisono and DeepSpeed, in turns, on tensors of several sizes.

    torchrun --standalone --nproc-per-node=2 benchmarks/backend_worker.py '{"sizes": [1024], "rounds": 3}'

Prints one JSON line on rank 0: microseconds by backend and size, whether each gave gloo's bits, and why DeepSpeed was
not measured, if so.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from deepspeed_shm import connected

import unisono.torch  # noqa: F401  (registers the backend)


def timed(reduce: Callable[[torch.Tensor], Any], size: int) -> float:
    """Microseconds of one all-reduce."""
    tensor = torch.ones(size // 4)
    count = max(3, min(1000, 2**25 // size))
    reduce(tensor)
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(count):
        reduce(tensor)
    return (time.perf_counter() - begun) / count * 1e6


def main() -> None:
    spec = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    deepspeed, reason = connected()
    ways: dict[str, Callable[[torch.Tensor], Any]] = {"gloo": dist.all_reduce}
    if deepspeed:
        ways["deepspeed"] = deepspeed
    ways["unisono"] = partial(dist.all_reduce, group=dist.new_group(backend="unisono"))
    names = list(ways)
    times = {name: {size: [] for size in spec["sizes"]} for name in names}
    equal = {}
    for size in spec["sizes"]:
        drawn = torch.randn(size // 4, generator=torch.Generator().manual_seed(dist.get_rank()))
        sums = {name: drawn.clone() for name in names}
        for name, reduce in ways.items():
            reduce(sums[name])
        equal[size] = {name: torch.equal(sums[name], sums["gloo"]) for name in names}
        for number in range(spec["rounds"]):
            first = number % len(names)
            for name in [*names[first:], *names[:first]]:
                times[name][size].append(timed(ways[name], size))
    if dist.get_rank() == 0:
        print(json.dumps({"times": times, "equal": equal, "reason": reason}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
