"""ModelSharing: a torch module and its optimizer in the arena, for the user's own loop.

The one idea: the loop's body is the gradient half of a round, and `optimizer.step()` is its update half. What is redone
after the loss of a rank is redone in between, inside, so code after `step()` runs once a step.

    sharing = ModelSharing(comm, model, optimizer, SharingOptions(shards=8, clip=1.0)); sharing.optimizer.step()

Limits: one model a world; trained parameters are float32 on the CPU. What may not be done to them is in
`parameter_guard.py`.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from unisono.arena.arena import Arena
from unisono.arena.membership.member import Member
from unisono.arena.round import Round
from unisono.comm.base import Communicator
from unisono.comm.collective_check import RankErrors
from unisono.comm.shm.communicator import ShmCommunicator
from unisono.comm.shm.membership import Membership
from unisono.comm.topology.local_peer_watch import PeerWatch
from unisono.comm.topology.shared_machine import NodeGroup
from unisono.errors import UserError
from unisono.loop.callbacks import NO_CALLBACKS, LoopCallbacks
from unisono.loop.checks import WIDTH, RankConsistency, check_batchnorm, check_equal, check_given, check_one_node
from unisono.loop.parameter_guard import ParameterGuard
from unisono.loop.shared_optimizer import SharedOptimizer, groups_of
from unisono.loop.sync_batchnorm import LoopStatisticsExchange
from unisono.loop.torch_optimizer_state import LoadedState, check_state, read_state
from unisono.messages.rank_reports import SendReport, SharedModel
from unisono.models.base import Layout
from unisono.models.torch.checks import GraphCheck, check
from unisono.models.torch.flat_views import FlatViews
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.shard_exchange import ShardExchange
from unisono.strategies.arena.state import LOSS, ArenaExtent, ArenaState, plan_shared
from unisono.strategies.arena.update import Update, UpdateStep

if TYPE_CHECKING:
    from unisono.loop.batches import Batch

WEIGHT = 1
"""The second column of `ArenaState.sums`: what a shard weighs in the mean."""


@final
@dataclass(frozen=True)
class Shapes:
    """Of a module: what the arena needs to know."""

    layout: Layout
    buffers_layout: Layout
    unaveraged: int
    fixed: int
    may_skip_params: bool = True


@final
@dataclass(frozen=True)
class SharingOptions:
    """How a model is shared."""

    shards: int
    clip: float = 0.0
    """The largest global norm of the gradient; 0: no clipping."""
    sync_batchnorm: bool = False
    """Whether batch norms look at the whole batch; then there are as many shards as ranks."""


@final
class ModelSharing:
    """One rank's side. Made by every rank of `comm`, which are all on one node, with equal modules."""

    def __init__(
        self,
        comm: Communicator,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        terms: SharingOptions,
        announce: SendReport | None = None,
    ) -> None:
        """announce: tells whoever started the ranks where the memory is, so that deaths can be taken over."""
        check_given(model, optimizer)
        check(model)
        if not terms.sync_batchnorm:
            check_batchnorm(model)
        self.model, self.shards, self.clip = model, terms.shards, terms.clip
        self.meetings = LoopStatisticsExchange(model) if terms.sync_batchnorm else None
        # With synchronised batch norm a death ends the run: nobody could take the shard over.
        self.announce = announce if self.meetings is None else None
        self.vectors = _flatten(model, self.meetings)
        self._trained = self.vectors.trained
        places = {id(parameter): place for place, parameter in enumerate(self._trained.values())}
        groups = groups_of(optimizer, places, terms.clip)
        self.kind, self.state_names = groups[0].options.name, make(groups[0].options).state_names
        given = read_state(optimizer, self._trained, self.vectors.layout)
        check_state(given, self.state_names)
        check_one_node(comm)
        check_equal(comm, model, groups, given)
        shapes = Shapes(self.vectors.layout, self.vectors.buffers_layout, self.vectors.unaveraged, self.vectors.fixed)
        self.shared, self.member = self._join(comm, shapes, groups[0].options, given)
        self.peer_watch = self._watch_peers(comm)
        self.vectors.point(self.shared.params, self.shared.buffers)
        self.vectors.enter()
        if self.meetings is not None:
            self.meetings.join(ShardExchange(self.shared, self.member))
        self.update_step = UpdateStep(self.shared, self.member, shapes, groups)
        self.round = Round(self.member, RankErrors(self.member.slot), self._deal_anew)
        self._comm = self._follow_members(comm)
        optimizer.state.clear()  # it lies in the arena now
        self.optimizer = SharedOptimizer(optimizer, self)
        self.guard, self.watch = ParameterGuard(model), GraphCheck(len(self._trained))
        self.agreement = RankConsistency(self.shared.agreement, self.member)
        self._begun = 0
        self.steps = 0
        """Rounds that were committed here."""
        self.steps_before = given.steps
        """Those of the run whose optimizer's state was given or loaded."""
        self.epochs = given.epochs
        """Epochs that were begun, in that run too."""
        self.batch: Batch | None = None
        self.callbacks: LoopCallbacks = NO_CALLBACKS
        self.guard.check()
        self.guard.check_gradients()

    # --- the parts of the beginning ----------------------------------------------------------------------------------

    def _join(
        self, comm: Communicator, shapes: Shapes, options: OptimizerOptions, given: LoadedState
    ) -> tuple[ArenaState, Member]:
        """The memory, with the model and the state that was given in it, and this rank's place."""
        width = 0 if self.meetings is None else self.meetings.width
        lives = tuple(range(1, self.shards + 1))
        extent = ArenaExtent(comm.size, self.shards, lives, undo=self.meetings is None, exchange=width, agreement=WIDTH)
        plan = plan_shared(shapes, options, extent)

        def fill(shared: ArenaState) -> None:
            self.vectors.write(self.model, shared.params, shared.buffers)
            self._write_state(shared, given)

        arena, member = Arena.join(NodeGroup(comm), plan, fill)
        if self.announce is None:
            arena.close()
        else:
            # By everybody: it is reached through whoever told it, who may have died before anybody listened.
            self.announce(SharedModel(os.getpid(), arena.fd, plan.sections.pack()))
        return arena.state, member

    def _watch_peers(self, comm: Communicator) -> PeerWatch | None:
        """Where nobody takes over for the dead, those who wait learn of deaths by themselves."""
        if self.announce is not None or comm.size == 1:
            return None
        peer_watch = PeerWatch(comm)
        self.member.detect_exits(peer_watch.exited)
        return peer_watch

    def _follow_members(self, comm: Communicator) -> ShmCommunicator | None:
        """The communicator, if it goes on without those who die."""
        if self.announce is None or not isinstance(comm, ShmCommunicator):
            return None
        comm.follow(Membership(self.member, self.update_step.take_chunk))
        return comm

    # --- the loop ----------------------------------------------------------------------------------------------------

    def begin_batch(self) -> int:
        """The number of a batch that is begun, the same on all ranks; never used again."""
        self._begun += 1
        return self._begun

    def begin_epoch(self, epoch: int) -> None:
        """A batch of it (from 0) has been gone through, here or before."""
        self.epochs = max(self.epochs, epoch + 1)

    def take_state(self, given: LoadedState) -> None:
        """Goes on from it. Called by every rank, with the same, before the first batch."""
        check_state(given, self.state_names)
        self._write_state(self.shared, given)
        self.steps_before, self.epochs = given.steps, given.epochs

    def _write_state(self, shared: ArenaState, given: LoadedState) -> None:
        for name, vector in zip(self.state_names, shared.state, strict=True):
            vector[: self.vectors.layout.length] = given.vectors.get(name, 0.0)
        shared.missed[...] = given.missed

    def close(self) -> None:
        """Gives back all but the memory, which the model still lies in; may be called twice."""
        self.callbacks.close()
        if self.peer_watch is not None:
            self.peer_watch.close()

    @property
    def parameters(self) -> list[torch.Tensor]:
        return list(self._trained.values())

    def _deal_anew(self) -> None:
        """The membership changed."""
        self.update_step.take_chunk()
        if self.batch is not None:
            self.batch.forget()

    def finish(self, position: int, live: int, lrs: list[float]) -> None:
        """The update half of round `position`."""
        self.guard.check()
        self.guard.check_gradients()
        if names := self.vectors.written():
            raise UserError(
                f"buffer {names[0]!r} was written between the last shard of a batch and optimizer.step()",
                hint="write to it after optimizer.step(), on every rank alike",
            )
        self.agreement.record_rates(lrs)
        sums = self.shared.sums[:live].copy()
        factor = 1.0 / float(sums[:, WEIGHT].sum())
        stepping = self.member.view.members
        update, makers = Update(lrs, self.steps_before + position, factor), self.round.contributors

        def work() -> None:
            nonlocal stepping
            stepping = self.member.view.members
            self.update_step.update(position, live, makers(position), update, self.round.barrier)

        self.round.finish(position, work)
        self.agreement.check_rates()
        if self._comm is not None:
            # Not those of the newest view: whoever came last to COMMIT does not know of that one yet.
            self._comm.renumber(stepping)
        self.steps = position
        self.guard.settle()
        self.vectors.follow()  # whoever looks at the module's buffers now sees the committed ones

    def loss(self, live: int) -> float:
        """The mean loss of the batch whose gradients exist."""
        sums = self.shared.sums[:live].sum(axis=0)
        if not sums[WEIGHT]:
            raise UserError(
                "all shards of a batch weigh 0: it has no mean",
                hint="give world.backward how many terms a mean is over",
            )
        return float(sums[LOSS] / sums[WEIGHT])

    def record_batch(self, terms: Sequence[int], epoch: int, step: int) -> None:
        """Shows the others which batch begins here; what was written to buffers since the last step is kept."""
        written = self.vectors.adopt()
        digest = int.from_bytes(hashlib.blake2b(written, digest_size=7).digest()) if written else 0
        self.agreement.record_batch(terms, epoch, step, digest)

    def turn_to(self, batch: "Batch") -> None:
        """`backward` is for this batch from now on."""
        self.batch = batch


def _flatten(model: torch.nn.Module, meetings: LoopStatisticsExchange | None) -> FlatViews:
    """The places of a module's arrays in flat vectors; its buffers lie in vectors already, with their values."""
    kept = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    # The mean of equal numbers need not be that number: those are taken from shard 0.
    equal = set[str]() if meetings is None else meetings.equal
    vectors = FlatViews(model, _averaged(model) - equal)
    for name, buffer in model.named_buffers():
        buffer.copy_(kept[name])  # they lie in a room of their own now, which is empty at first
    return vectors


def _averaged(model: torch.nn.Module) -> set[str]:
    """The buffers that a forward changes by small steps: batch norm's running statistics."""
    return {name for name, _ in model.named_buffers() if name.rpartition(".")[2] in ("running_mean", "running_var")}
