"""Sharing: a torch module and its optimizer in the arena, for the user's own loop.

The one idea: the loop's body is the gradient half of a round, and `optimizer.step()` is its update half. What is redone
after the loss of a rank is redone in between, inside, so code after `step()` runs once a step.

    sharing = Sharing(comm, model, optimizer, Terms(shards=8, clip=1.0)); sharing.optimizer.step()

Limits: one model a world; parameters are float32 on the CPU. Writing to parameters after `share` is refused where torch
tells of it (writes through `p.data` are not seen).
"""

import hashlib
import math
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from unisono.arena import protocol
from unisono.arena.member import Gone, Member, Regrouped
from unisono.arena.protocol import COMMIT, PHASES
from unisono.comm.arrival import late, lost
from unisono.comm.base import Communicator
from unisono.comm.node import node_colour, share_segment
from unisono.comm.vigil import Vigil
from unisono.errors import UserError
from unisono.loop.attending import NOBODY, Attendant
from unisono.loop.optimizers import groups_of
from unisono.loop.refusals import NoGradient
from unisono.loop.stepping import SharedOptimizer
from unisono.models.base import Layout
from unisono.models.torch.checks import check
from unisono.models.torch.vectors import Vectors
from unisono.optim import make
from unisono.resources import usable_cores
from unisono.strategies.owner import Group, Owner, Update
from unisono.strategies.shared import LOSS, Extent, Shared, plan_sections

if TYPE_CHECKING:
    from unisono.loop.batches import Batch

WEIGHT = 1
"""The second column of `Shared.sums`: what a shard weighs in the mean."""


@final
@dataclass(frozen=True)
class Shapes:
    """Of a module: what the arena needs to know."""

    layout: Layout
    buffers_layout: Layout
    taken: int
    fixed: int
    skips: bool = True


@final
@dataclass(frozen=True)
class Terms:
    """How a model is shared."""

    shards: int
    clip: float = 0.0
    """The largest global norm of the gradient; 0: no clipping."""


@final
class Sharing:
    """One rank's side. Made by every rank of `comm`, which are all on one node, with equal modules."""

    def __init__(
        self,
        comm: Communicator,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        terms: Terms,
        announce: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """announce: tells whoever started the ranks where the memory is, so that deaths can be taken over."""
        shards, clip = terms.shards, terms.clip
        _check_given(model, optimizer)
        check(model)
        self.model, self.shards, self.clip = model, shards, clip
        kept = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        self.vectors = Vectors(model, _averaged(model))
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])  # they lie in a room of their own now, which is empty at first
        self._trained, self._parameters = self.vectors.trained, list(model.named_parameters())
        places = {id(parameter): place for place, parameter in enumerate(self._trained.values())}
        groups = groups_of(optimizer, places, clip)
        shapes = Shapes(self.vectors.layout, self.vectors.buffers_layout, self.vectors.taken, self.vectors.fixed)
        _check_one_node(comm)
        _check_equal(comm, model, groups)
        lives = tuple(range(1, shards + 1))
        sections = plan_sections(shapes, groups[0].options, Extent(comm.size, shards, lives))
        segment = share_segment(comm, list(range(comm.size)), sections.nbytes)
        with closing(segment):
            self.shared = Shared(segment, sections, comm.size)  # its views keep the memory
            self._kept = os.dup(segment.fd) if comm.rank == 0 and announce is not None else -1
        if comm.rank == 0:
            self.vectors.write(model, self.shared.params, self.shared.buffers)
            protocol.first_view(self.shared.words, range(comm.size), comm.size)
        comm.barrier()
        if announce is not None and self._kept >= 0:
            announce({"pid": os.getpid(), "fd": self._kept, "sections": sections.pack()})
        crowded = comm.size > usable_cores()
        self.member = Member(self.shared.words, comm.rank, comm.size, crowded=crowded, timeout_s=comm.timeout_s)
        self.announce = announce
        self.vigil = Vigil(comm) if announce is None and comm.size > 1 else None
        if self.vigil is not None:
            self.member.watch(self.vigil.gone)
        self.vectors.point(self.shared.params, self.shared.buffers)
        self.vectors.enter()
        self.owner = Owner(self.shared, self.member, shapes, groups)
        self.optimizer = SharedOptimizer(optimizer, self)
        self.kind, self.state_names = groups[0].options.name, make(groups[0].options).state_names
        self._timeout_s = comm.timeout_s
        self._rows = np.zeros((0, len(self.shared.params)), np.float32)
        self._versions = self._versions_now()
        self.steps = 0
        """Rounds that were committed here."""
        self.steps_before = 0
        """Those of the run whose optimizer's state was loaded."""
        self.epochs = 0
        """Epochs that were begun, in that run too."""
        self.batch: Batch | None = None
        self.attendant: Attendant = NOBODY
        self.forbid_gradients()

    def close(self) -> None:
        """Gives back all but the memory, which the model still lies in; may be called twice."""
        self.attendant.close()
        if self.vigil is not None:
            self.vigil.close()

    @property
    def parameters(self) -> list[torch.Tensor]:
        return list(self._trained.values())

    def forbid_gradients(self) -> None:
        """What stands in p.grad: the gradient lies in the arena, in parts."""
        for parameter in self._trained.values():
            if not isinstance(parameter.grad, NoGradient):
                parameter.grad = NoGradient.like(parameter)

    def rows(self, count: int) -> np.ndarray:
        """Rows for the gradients of `count` shards of this rank, padded with zeros."""
        if len(self._rows) < count:
            self._rows = np.zeros((count, len(self.shared.params)), np.float32)
            self.owner.dealing.forget()
        return self._rows

    def meet(self, position: int, phase: int) -> bool:
        try:
            return self.member.meet(position, phase)
        except TimeoutError:
            raise late(self.member.slot, PHASES[phase], self._timeout_s, self.member.late()) from None
        except Gone as gone:
            raise lost(self.member.slot, PHASES[phase], gone.slots) from None

    def finish(self, position: int, live: int, lrs: list[float]) -> None:
        """The update half of round `position`, as often as the membership changes in it."""
        self.check_parameters()
        sums = self.shared.sums[:live].copy()
        factor = 1.0 / float(sums[:, WEIGHT].sum())
        while True:
            view = self.member.view
            if (view.position, view.reached) >= (position, COMMIT):
                break
            makers = view.dealers if view.position == position else view.members
            try:
                self.owner.update(position, live, makers, Update(lrs, self.steps_before + position, factor), self.meet)
                self.meet(position, COMMIT)
                break
            except Regrouped:
                self.owner.take_chunk()
        self.steps = position
        self.vectors.enter()  # whoever looks at the module's buffers now sees the committed ones

    def loss(self, live: int) -> float:
        """The mean loss of the batch whose gradients exist."""
        sums = self.shared.sums[:live].sum(axis=0)
        return float(sums[LOSS] / sums[WEIGHT])

    def turn_to(self, batch: "Batch") -> None:
        """`backward` is for this batch from now on."""
        self.batch = batch

    def _versions_now(self) -> list[int]:
        return [parameter._version for parameter in self._trained.values()]

    def check_parameters(self) -> None:
        """A `UserError` if one was written to, frozen or thawed behind our back."""
        for (name, parameter), version in zip(self._trained.items(), self._versions, strict=True):
            if parameter._version != version:
                raise UserError(
                    f"parameter {name!r} was written outside optimizer.step(): ranks share one copy of it",
                    hint="load and initialise parameters before world.share; between steps leave them alone",
                )
        for name, parameter in self._parameters:
            if parameter.requires_grad != (name in self._trained):
                how = "unfrozen" if parameter.requires_grad else "frozen"
                raise UserError(
                    f"parameter {name!r} was {how} after world.share",
                    hint="decide what is trained before it; a learning rate of 0 keeps a group as it is for a while",
                )


def _averaged(model: torch.nn.Module) -> set[str]:
    """The buffers that a forward changes by small steps: batch norm's running statistics."""
    return {name for name, _ in model.named_buffers() if name.rpartition(".")[2] in ("running_mean", "running_var")}


def _check_given(model: object, optimizer: object) -> None:
    for given, kind in ((model, torch.nn.Module), (optimizer, torch.optim.Optimizer)):
        if not isinstance(given, kind):
            raise UserError(
                f"world.share was given a {type(given).__name__} instead of a torch {kind.__name__}",
                hint="world.share(model, optimizer), in this order",
            )


def _check_one_node(comm: Communicator) -> None:
    nodes = len(set(comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist()))
    if nodes > 1:
        raise UserError(
            f"the ranks are on {nodes} nodes: a model can be shared within one",
            hint="start all ranks on one machine",
        )


def _check_equal(comm: Communicator, model: torch.nn.Module, groups: list[Group]) -> None:
    """Ranks that start from different values would not train one model."""
    digest = hashlib.sha256(repr(groups).encode())
    for name, tensor in model.state_dict().items():
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
    if not 0 < found < math.inf:
        raise UserError(f"weight is {weight}", hint="give how many terms the mean is over, above 0")
    return found
