"""DeepSpeed's all-reduce of CPUs in shared memory, as a peer of `backend_worker.py`, if it can be built here.

The one idea: its C++ comes with the package and is compiled on first use (about a minute; torch keeps the result in
~/.cache/torch_extensions). Every rank says whether it can take part, so that either all measure it or none does. The
files that DeepSpeed makes in /dev/shm and never removes are removed as soon as all ranks have mapped them.

    pip install deepspeed ninja        # in the environment of unisono; g++ is needed too

DeepSpeed uses it in `inference_all_reduce` alone: its training reduces gradients with gloo. We call the operation
itself, without DeepSpeed's wrappers in Python. While a rank waits, it spins and gives no core away.

Limits: a compilation that was killed leaves a file `lock` in that directory, for which torch waits until it is deleted.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import disk_usage
from typing import Any

import torch
import torch.distributed as dist

FILES = Path("/dev/shm")
FILE_BYTES = 67 * 2**20
"""A little more than DeepSpeed takes for each rank, whatever is exchanged; without room, ranks die of SIGBUS."""


def connected() -> tuple[Callable[[torch.Tensor], Any] | None, str]:
    """All-reduce in place over all ranks, which are on this machine; or None and why not."""
    library, reason = None, ""
    for turn in range(dist.get_world_size()):  # the first compiles, the others find the result
        if turn == dist.get_rank():
            try:
                library = _built()
            except Exception as error:  # whatever happens inside another's package, the others are measured
                reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        dist.barrier()
    reasons = [""] * dist.get_world_size()
    dist.all_gather_object(reasons, reason)
    if any(reasons):
        return None, next(filter(None, reasons))
    _connect(library)
    return torch.ops.deepspeed.inference_all_reduce_, ""


def _built() -> Any:
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # for ninja
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    library = ShareMemCommBuilder().load(verbose=False)
    if not library.vector_kernel_level():
        raise RuntimeError("this processor is without AVX2")
    if disk_usage(FILES).free < dist.get_world_size() * FILE_BYTES:
        raise RuntimeError(f"{FILES} is too small")
    return library


def _connect(library: Any) -> None:
    """Each rank makes its file, maps those of all, and removes its own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ["LOCAL_SIZE"] = str(size)  # by this DeepSpeed knows that all ranks are on one machine
    name = f"deepspeed_allreduce_buffer_{os.getuid()}_{os.environ['MASTER_ADDR']}_{os.environ['MASTER_PORT']}_{rank}"
    try:
        library.initialize(size, rank)
        dist.barrier()
    finally:
        (FILES / name).unlink(missing_ok=True)
