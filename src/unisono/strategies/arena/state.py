"""ArenaState: what a node's ranks have in common, and where it lies. One copy each of parameters, state and buffers.

The one idea: everything from which a rank could go on after another one died is here, not in any process: parameters,
optimizer state, buffers, what the epoch has found so far, scores, times. A process holds only what it can compute anew.

    plan = plan_shared(model, OptimizerOptions("adam", lr=0.001), ArenaExtent(size=4, shards=8, lives=(8,)))
    shared = Arena.create(plan).state

Who may touch what and when:
- params, state, buffers: read by all until READY; then each chunk is its owner's until COMMIT (buffers: the first
  member's); their old values lie in the twins until the round is committed;
- gradients, sums, new buffers, unused: each row is its shard's, which is one member's until READY, then read by all
  until COMMIT; labels: see `shard_sums.py`;
- squares (clipping, LARS only): written between READY and NORMS, read until COMMIT;
- steps, scores, missed, clock: the first member's, between READY and COMMIT; table, and its labels: as gradients;
- stats: each rank its own row; shares: each owner its own row, between READY and COMMIT;
- exchange words and tables: see `shard_exchange.py`; replica states and their labels: see
`strategies/local/replica_optimizer_state.py`;
- failure notices: see `strategies/failure_notice.py`; agreement: see `loop/checks.py`; what comes from other
machines: see `machines/mailbox.py`;
- spare: see `arena/membership/halt_and_snapshot_requests.py`.
"""

from dataclasses import dataclass, replace
from typing import Protocol, final

import numpy as np

from unisono.arena.membership import protocol
from unisono.arena.membership.halt_and_snapshot_requests import Requests
from unisono.arena.membership.undo import Undo
from unisono.arena.memory.segment import Sections, Segment
from unisono.arena.reduction_tree import BLOCK
from unisono.errors import UnisonoError
from unisono.models.base import Layout
from unisono.optim import make
from unisono.optim.gradient_norms import Scaling, Segments
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.shard_sums import rows_needed
from unisono.strategies.failure_notice import ROOM_BYTES, FailureNotices
from unisono.strategies.local.replica_optimizer_state import ReplicaState
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.strategies.machines.mailbox import MachineMailbox, mailbox_sections

_F4, _F8, _I8 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)

LOSS, CORRECT = 0, 1
STATS = (
    "epoch",
    "samples",
    "data_s",
    "compute_s",
    "wait_s",
    "update_s",
    "exchange_s",
    "last_steps",
    "dealt",
    "memory_bytes",
)
"""Columns of `stats`: of the current epoch (exchange_s is part of compute_s), the samples of the rank in the epoch's
last step (dealt), its memory."""
EXCHANGE_LINE = 16
"""Words from one rank's to the next in `exchange_words`: 128 bytes."""
BEGUN, ENDED, FIRST_SYNC, FROM_STEP = range(4)
"""Entries of `clock`: see `base.Clock`."""


@final
@dataclass(frozen=True)
class ArenaExtent:
    """The numbers that decide how much memory is needed."""

    size: int
    shards: int
    lives: tuple[int, ...]
    """The numbers of shards that batches have: that of a full one, that of the last."""
    steps: int = 1
    """Steps of an epoch."""
    epochs: int = 1
    blocks: int = 0
    """Blocks of the largest evaluation."""
    undo: bool = True
    """Whether a step can be redone after the death of a rank; it costs a second copy."""
    spare: bool = False
    """Whether there is room for a copy of which a snapshot is written."""
    exchange: int = 0
    """`Model.exchange_width`."""
    states: int = 0
    """Vectors of optimizer state that each shard keeps for itself: those of the replicas of `local`."""
    agreement: int = 0
    """Numbers a rank that ranks of a user's own loop compare: `loop/checks.py`."""
    machine_layout: MachineLayout | None = None
    """Where there are several machines; `size` is then the ranks of this one."""


class Shaped(Protocol):
    """What is known of a model here: any `Model` will do."""

    @property
    def layout(self) -> Layout: ...

    @property
    def buffers_layout(self) -> Layout: ...

    @property
    def unaveraged(self) -> int: ...

    @property
    def fixed(self) -> int: ...

    @property
    def may_skip_params(self) -> bool: ...


def padded(length: int) -> int:
    """Whole blocks."""
    return -(-length // BLOCK) * BLOCK


def segments_of(model: Shaped) -> Segments:
    """The pieces of a model's flat vector."""
    return Segments(list(zip(model.layout.offsets, model.layout.sizes, strict=True)), padded(model.layout.length))


def scaling_of(model: Shaped, options: OptimizerOptions) -> Scaling:
    """What clipping and LARS need; vectors (biases, batch norm) are not adapted."""
    return Scaling(options, segments_of(model), [len(shape) > 1 for shape in model.layout.shapes.values()])


def plan_sections(model: Shaped, options: OptimizerOptions, extent: ArenaExtent) -> Sections:
    """Where everything lies."""
    size, shards, parameters = extent.size, extent.shards, len(model.layout.shapes)
    length, buffers = padded(model.layout.length), model.buffers_layout.length
    whole = (1 + len(make(options).state_names), length)
    own = shards * extent.states
    return Sections(
        {
            "words": (protocol.words_needed(size), _I8),
            "vectors": (whole, _F4),
            "twins": (whole if extent.undo else 0, _F4),
            "buffers": (buffers, _F4),
            "buffers twin": (buffers if extent.undo else 0, _F4),
            "spare": ((whole[0] + own, length) if extent.spare else 0, _F4),
            "buffers spare": (buffers if extent.spare else 0, _F4),
            "steps spare": ((extent.steps, 2) if extent.spare else 0, _F8),
            "scores spare": ((extent.epochs + 1, 3) if extent.spare else 0, _F8),
            "missed spare": ((2, parameters) if extent.spare else 0, _I8),
            "new buffers": ((shards, buffers - model.fixed), _F4),
            "sums": ((shards, 2), _F8),
            "unused": ((shards, parameters), np.dtype(np.bool_)),
            "squares": ((scaling_of(model, options).rows, segments_of(model).count), _F8),
            "shares": ((size, size + 1, parameters, 3), _F8),
            "share labels": (size, _I8),
            "steps": ((extent.steps, 2), _F8),
            "scores": ((extent.epochs + 1, 3), _F8),
            "missed": ((2, parameters), _I8),
            "table": ((extent.blocks, 2), _F8),
            "table labels": (extent.blocks, _I8),
            "stats": ((size, len(STATS)), _F8),
            "clock": (4, _F8),
            "farewells": ((size + 1, ROOM_BYTES), np.dtype(np.uint8)),
            "agreement": ((size, extent.agreement), _I8),
            "exchange words": (size * EXCHANGE_LINE if extent.exchange else 0, _I8),
            "exchange tables": ((2, shards, 1 + extent.exchange) if extent.exchange else 0, _F8),
            "replica states": ((2, shards, extent.states, length) if own else 0, _F4),
            "state labels": ((2, shards) if own else 0, _I8),
            **mailbox_sections(extent.machine_layout, extent.lives, (length, parameters, len(STATS))),
            "labels": (rows_needed(extent.lives, extent.machine_layout), _I8),
            "gradients": ((rows_needed(extent.lives, extent.machine_layout), length), _F4),
        }
    )


@final
@dataclass(frozen=True)
class PersistentArrays:
    """What a run is, between two rounds: all that a snapshot holds."""

    vectors: list[np.ndarray]
    buffers: np.ndarray
    steps: np.ndarray
    scores: np.ndarray
    missed: np.ndarray
    """Steps that each parameter has missed: see `strategies/unused_parameters.py`."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """All of them."""
        return [*self.vectors, self.buffers, self.steps, self.scores, self.missed]


class SnapshotSource(Protocol):
    """What snapshots are made of, and the requests for them. `ArenaState` is one."""

    requests: Requests
    spare: PersistentArrays | None
    """Room for a copy; None: no snapshots are made on the way."""

    def lasting_at(self, position: int) -> PersistentArrays:
        """What is left of round `position`, the last that is finished."""


@final
class ArenaState:
    """The arrays, in a segment that is zero at the start."""

    def __init__(
        self, segment: Segment, sections: Sections, size: int, others: tuple[MachineLayout, int] | None = None
    ) -> None:
        """others: if there are several machines, how they are seated, and the length of the model's vector."""

        def array(name: str) -> np.ndarray:
            return sections.array(segment, name)

        self.size = size
        self.words = sections.words(segment, "words")
        self.requests = Requests(self.words)
        vectors, twins = array("vectors"), array("twins")
        self.vectors = list(vectors)
        """The parameters, then the optimizer's vectors, padded to whole blocks."""
        self.params, self.state = self.vectors[0], self.vectors[1:]
        self.buffers = array("buffers")
        # Columns, so that a stretch of all vectors is copied in one call.
        self.undo = Undo(self.words, size, [vectors.T], [twins.T]) if twins.size else None
        self.buffers_undo = Undo(self.words, size, [self.buffers], [array("buffers twin")], 1) if twins.size else None
        self.new_buffers, self.sums, self.unused = array("new buffers"), array("sums"), array("unused")
        self.squares, self.shares, self.share_labels = array("squares"), array("shares"), array("share labels")
        self.steps, self.scores, self.table = array("steps"), array("scores"), array("table")
        self.missed = array("missed")
        self.table_labels = array("table labels").data
        """For each row the round that it is of."""
        self.stats, self.clock = array("stats"), array("clock")
        self.gradients, self.labels = array("gradients"), array("labels").data
        """A row for each shard, and what it holds: see `shard_sums.py`."""
        self.agreement, self.failure_notices = array("agreement"), FailureNotices(array("farewells"))
        self.exchange_words, self.exchange_tables = array("exchange words").data, array("exchange tables")
        self.mailbox = MachineMailbox(array, *others) if others is not None and others[0].count > 1 else None
        self.lasting = PersistentArrays(self.vectors, self.buffers, self.steps, self.scores, self.missed)
        states = array("replica states")
        self.states = ReplicaState(states, array("state labels")) if states.size else None
        spare = array("spare")
        rest = (array(f"{name} spare") for name in ("buffers", "steps", "scores", "missed"))
        self.spare: PersistentArrays | None = PersistentArrays(list(spare), *rest) if spare.size else None

    def lasting_at(self, position: int) -> PersistentArrays:
        """What is left of round `position`, the last that is finished; vectors of replicas' states come last."""
        if self.states is None:
            return self.lasting
        return replace(self.lasting, vectors=[*self.vectors, *self.states.at(position)])

    def restore(self, view: protocol.View) -> list[int]:
        """Takes back what was begun of an update that is to be done again; the ranks that had begun."""
        if view.reached != protocol.READY:
            return []
        if self.undo is None or self.buffers_undo is None:
            raise UnisonoError("a rank was lost in the middle of an update, and this run cannot take an update back")
        return sorted({*self.undo.restore(view.position), *self.buffers_undo.restore(view.position)})


@final
@dataclass(frozen=True)
class SharedPlan:
    """Where the arrays of `size` ranks lie: what a process needs to know for `Arena.create`, `attach` and `join`."""

    sections: Sections
    size: int
    others: tuple[MachineLayout, int] | None = None
    """As `ArenaState` takes it."""

    def over(self, segment: Segment) -> ArenaState:
        return ArenaState(segment, self.sections, self.size, self.others)


def plan_shared(model: Shaped, options: OptimizerOptions, extent: ArenaExtent) -> SharedPlan:
    """Where everything lies."""
    others = None if extent.machine_layout is None else (extent.machine_layout, model.layout.length)
    return SharedPlan(plan_sections(model, options, extent), extent.size, others)
