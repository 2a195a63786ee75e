"""Devices: which one each rank of `ddp` and `accelerate` computes on.

The one idea: one process per device, and the choice is arithmetic: the n-th rank of a node takes its n-th GPU. How many
there are is asked elsewhere, once, so everything here can be tried without a GPU.

    [device_of(choose_device("auto", gpus=2), local) for local in local_ranks([7, 7, 9])]    # cuda:0, cuda:1, cuda:0

Limits: a launcher that shows each rank one GPU of its own (`srun --gpus-per-task`) is not understood: the second rank
of a node looks for a second GPU, and is refused.
"""

from collections.abc import Sequence

from unisono.errors import UserError

DEVICES = ("auto", "cpu", "cuda")
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
"""Device -> what moves gradients there."""


def choose_device(wanted: str, gpus: int) -> str:
    """cpu or cuda, where torch sees `gpus` GPUs on this node; auto: GPUs where there are any."""
    if wanted == "cuda" and not gpus:
        raise UserError("--device cuda, but torch sees no GPU here", hint="use --device cpu, or a torch with CUDA")
    return "cuda" if gpus and wanted != "cpu" else "cpu"


def check_devices(kind: str, ranks: int, gpus: int) -> None:
    """A `UserError` if `ranks` of one node are too many for its GPUs."""
    if kind == "cuda" and ranks > gpus:
        raise UserError(
            f"--device cuda: {ranks} ranks on this node, and torch sees {gpus} GPUs: a process needs one of its own",
            hint=f"use --ranks {gpus} (--num-gpus {gpus}) here, or --device cpu" if gpus else "use --device cpu",
        )


def check_one_kind(kinds: Sequence[str]) -> None:
    """A `UserError` if ranks chose different kinds of device: what moves gradients on one does not reach the other."""
    for rank, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise UserError(
                f"rank 0 computes on {kinds[0]}, rank {rank} on {kind}: nodes differ",
                hint="use --device cpu, or nodes that all have GPUs",
            )


def device_of(kind: str, local_rank: int) -> str:
    """The device of a rank, as torch calls it."""
    return "cpu" if kind == "cpu" else f"{kind}:{local_rank}"


def local_ranks(nodes: Sequence[int]) -> list[int]:
    """Of each rank: how many before it are on its node. `nodes`: something that tells nodes apart, rank by rank."""
    return [list(nodes[:rank]).count(node) for rank, node in enumerate(nodes)]
