"""Checks of a user's own loop: the arguments of `world.share` and `world.backward`, and whether all ranks agree.

The one idea: ranks compare what they hold, before they share anything and then in every step, because one that differs
would spoil the others; every rank raises the same error, which names the difference.

    check_given(model, optimizer); check_equal(comm, model, groups, state); weight_of(loss, 32, None)    # 32.0
    consistency.record_batch(terms, epoch, step, buffers)          # before READY
    consistency.check_batch()                                      # after it
    consistency.record_rates(lrs); ...; consistency.check_rates()  # before the update, after COMMIT

`RankConsistency`: each rank leaves a row of numbers in the arena before a barrier that takes place anyway, and looks at
the rows of the others after it. So no rank waits for this check, and it takes microseconds a step. Without it, ranks
with different batches or learning rates would train on, and the result would mean nothing.

Limits: `check_equal` compares 64 bits of a hash. Of data in memory 64 rows are compared, of a dataset whose items are
computed only its length. Learning rates are compared when the update is done: its result is not to be used.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import nn

from unisono.arena.membership.member import Member
from unisono.comm.base import Communicator
from unisono.comm.topology.shared_machine import node_colour
from unisono.errors import UserError
from unisono.loop.torch_optimizer_state import LoadedState
from unisono.strategies.arena.update import Group


def check_given(model: object, optimizer: object) -> None:
    """Refuses all but an unwrapped module and an optimizer, in this order."""
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
    """What a shard's mean weighs: its samples, unless `weight` is given."""
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


_SAME = "give world.batches the same arguments on every rank, and go through the same batches"
_DATA = "give every rank the same data: seed whatever splits, shuffles or makes them (random_split has generator=)"
_HINTS = {
    "the number of samples": _DATA,
    "the batch size": _SAME,
    "the number of shards": _SAME,
    "the seed": _SAME,
    "shuffle": _SAME,
    "the data": _DATA,
    "the epoch": _SAME,
    "the step": _SAME,
    "what was written to buffers": "write the same on every rank; after model.eval() batch norm writes nothing",
    "the learning rates": "decide by what is the same on all ranks: batch.loss, not the loss of a shard",
}
"""What a row holds, in this order, and what to do about a difference."""
_HASHES = {"the data", "what was written to buffers", "the learning rates"}
WIDTH = len(_HINTS)


@final
class RankConsistency:
    """One rank's side. rows (size, WIDTH) int64: those of all ranks, in the arena."""

    def __init__(self, rows: np.ndarray, member: Member) -> None:
        self._rows, self._member = rows, member
        self._own = rows[member.slot]

    def record_batch(self, terms: Sequence[int], epoch: int, step: int, buffers: int) -> None:
        """terms: of `Batches.terms`; buffers: a hash of what was written to them, 0 for nothing."""
        self._own[: WIDTH - 1] = (*terms, epoch, step, buffers)

    def check_batch(self) -> None:
        """A `UserError` on every rank if the batches of two of them differ."""
        self._check(slice(0, WIDTH - 1))

    def record_rates(self, lrs: Sequence[float]) -> None:
        self._own[WIDTH - 1] = hash(tuple(lrs))

    def check_rates(self) -> None:
        """A `UserError` on every rank if two of them updated with other learning rates."""
        self._check(slice(WIDTH - 1, WIDTH))

    def _check(self, columns: slice) -> None:
        members = self._member.view.members  # rows of the dead are older
        first, *others = (self._rows[slot, columns] for slot in members)
        for slot, row in zip(members[1:], others, strict=True):
            if row.tobytes() == first.tobytes():
                continue
            names = list(_HINTS)[columns]
            number = int(np.flatnonzero(row != first)[0])
            values = "" if names[number] in _HASHES else f": {row[number]} against {first[number]}"
            raise UserError(
                f"rank {slot} differs from rank {members[0]} in {names[number]}{values}", hint=_HINTS[names[number]]
            )
