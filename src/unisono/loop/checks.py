"""Checks the arguments of `world.share` and `world.backward`; every rank refuses wrong ones by name.

The one idea: ranks compare what they hold before they share anything, for one that differs would spoil all others.

    check_given(model, optimizer); check_equal(comm, model, groups, state); weight_of(loss, 32, None)    # 32.0

Limits: `check_equal` compares 64 bits of a hash.
"""

import hashlib
import math

import numpy as np
import torch
from torch import nn

from unisono.comm.base import Communicator
from unisono.comm.topology.node import node_colour
from unisono.errors import UserError
from unisono.loop.loaded_state import LoadedState
from unisono.strategies.arena.update import Group


def check_given(model: object, optimizer: object) -> None:
    """A module that nobody else has wrapped and an optimizer, in this order."""
    for given, kind in ((model, torch.nn.Module), (optimizer, torch.optim.Optimizer)):
        if not isinstance(given, kind):
            raise UserError(
                f"world.share was given a {type(given).__name__} instead of a torch {kind.__name__}",
                hint="world.share(model, optimizer), in this order",
            )
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise UserError(
            f"world.share was given a {type(model).__name__}, which exchanges gradients itself",
            hint="give the module that it wraps (model.module), and leave the wrapper out",
        )


def check_batchnorm(model: nn.Module) -> None:
    """torch's SyncBatchNorm does nothing on processors, without a word."""
    for name, part in model.named_modules():
        if isinstance(part, nn.SyncBatchNorm):
            raise UserError(
                f"{name or type(model).__name__!r} is torch's SyncBatchNorm, which synchronises GPUs alone: here it "
                "would see one shard",
                hint="world.share(model, optimizer, sync_batchnorm=True), which takes BatchNorm1d, 2d, 3d as they are",
            )


def check_one_node(comm: Communicator) -> None:
    """All ranks reach the same memory."""
    nodes = len(set(comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist()))
    if nodes > 1:
        raise UserError(
            f"the ranks are on {nodes} nodes: a model can be shared within one",
            hint="start all ranks on one machine",
        )


def check_equal(comm: Communicator, model: nn.Module, groups: list[Group], given: LoadedState) -> None:
    """Ranks that start from different values would not train one model."""
    digest = hashlib.sha256(
        repr((groups, given.steps, given.epochs, given.missed.tolist(), sorted(given.vectors))).encode()
    )
    for name in sorted(given.vectors):
        digest.update(given.vectors[name].data)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):  # some are in no state_dict
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    found = comm.all_gather(np.frombuffer(digest.digest()[:8], np.int64).copy())[:, 0]
    strangers = [rank for rank in range(comm.size) if found[rank] != found[0]]
    if strangers:
        raise UserError(
            f"rank {strangers[0]}'s model or optimizer differs from rank 0's; {len(strangers)} of {comm.size} ranks do",
            hint="make the same one on every rank: torch.manual_seed(0) before it is built",
        )


def weight_of(loss: torch.Tensor, samples: int, weight: float | None) -> float:
    """What a shard's mean weighs: its samples, unless told otherwise."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = f"tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise UserError(
            f"world.backward was given a {what}, not a tensor of one element", hint="give the mean loss of the shard"
        )
    if not loss.requires_grad:
        raise UserError("the loss depends on no parameter that is trained", hint="compute it with the shared model")
    found = float(samples if weight is None else weight)
    if not 0 <= found < math.inf:
        raise UserError(f"weight is {weight}", hint="give how many terms the mean is over, 0 or more")
    if found == 0 and not math.isfinite(float(loss.detach())):
        raise UserError(
            f"a shard of weight 0 has the loss {float(loss.detach())}: 0 times that is not 0",
            hint="give it a loss that is finite: the sum of its terms / max(count, 1)",
        )
    return found
