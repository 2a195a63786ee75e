"""A rank of `backend.py`: all-reduce over gloo and over unisono, in turns, on tensors of several sizes.

    torchrun --standalone --nproc-per-node=2 benchmarks/backend_worker.py '{"sizes": [1024], "rounds": 3}'

Prints one JSON line on rank 0: microseconds by backend and size, and whether both gave the same bits.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

import unisono.torch  # noqa: F401  (registers the backend)


def timed(group: dist.ProcessGroup, size: int) -> float:
    """Microseconds of one all-reduce."""
    tensor = torch.ones(size // 4)
    count = max(3, min(1000, 2**25 // size))
    dist.all_reduce(tensor, group=group)
    dist.barrier(group=group)
    begun = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begun) / count * 1e6


def main() -> None:
    spec = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "unisono": dist.new_group(backend="unisono")}
    times = {backend: {size: [] for size in spec["sizes"]} for backend in groups}
    equal = {}
    for size in spec["sizes"]:
        drawn = torch.randn(size // 4, generator=torch.Generator().manual_seed(dist.get_rank()))
        copies = [drawn.clone() for _ in groups]
        for group, copy in zip(groups.values(), copies, strict=True):
            dist.all_reduce(copy, group=group)
        equal[size] = torch.equal(*copies)
        for number in range(spec["rounds"]):
            for backend in sorted(groups, reverse=bool(number % 2)):
                times[backend][size].append(timed(groups[backend], size))
    if dist.get_rank() == 0:
        print(json.dumps({**times, "equal": equal}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
