"""Synchronised batch norm in the user's own loop: where the batch norms of all ranks meet.

The one idea: each rank has one shard of a batch, so a layer may simply wait, in the middle of a forward and of a
backward, until the same layer of the other ranks is there; what they tell each other goes through the arena.

    model, optimizer = world.share(model, optimizer, sync_batchnorm=True)

A batch then gives the loss and the gradients of one process that sees all of it, to rounding. Layers that are in
evaluation (model.eval()) do not meet.

Limits: as many shards as ranks, so other numbers of ranks give other bits; the death of a rank ends the run, for nobody
could compute two shards at once. A shared model cannot be pickled whole; its state_dict can.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from torch import nn

from unisono.errors import UserError
from unisono.models.base import Array
from unisono.models.torch.sync_batchnorm import of_gradients, row_width, synchronise
from unisono.strategies.arena.shard_exchange import ShardExchange

T = TypeVar("T")


@final
class LoopStatisticsExchange:
    """Changes the batch norms of `model`; a `UserError` if it has none."""

    def __init__(self, model: nn.Module) -> None:
        self.width = row_width(model)
        """See `Model.exchange_width`."""
        if not self.width:
            raise UserError(
                f"sync_batchnorm=True, and {type(model).__name__} has no batch norm", hint="leave sync_batchnorm out"
            )
        self.equal = synchronise(model, self)
        """The buffers that every rank leaves with the same values."""
        self._exchange: ShardExchange | None = None
        self._open, self._weight = False, 1.0

    def join(self, exchange: ShardExchange) -> None:
        """The arena is there."""
        self._exchange = exchange

    def open(self, position: int, live: int) -> None:
        """This rank's shard of a batch with `live` shards is handed to the user's code."""
        assert self._exchange is not None
        self._exchange.open(position, live)
        self._open, self._weight = True, 1.0

    def weigh(self, weight: float) -> None:
        """What the shard's loss, whose gradients follow, weighs in the mean over the batch."""
        self._weight = weight

    def close(self) -> None:
        """It is done."""
        self._open = False

    def combine(self, label: int, value: Array, finish: Callable[[Sequence[Array]], T]) -> T:
        """finish(the values of all ranks that have a shard)."""
        if not self._open or self._exchange is None:
            raise UserError(
                "the model was called in training mode outside a batch: its batch norms would wait for those of other "
                "ranks",
                hint="call model.eval() before, and model.train() after",
            )
        if not of_gradients(label):
            return finish(list(self._exchange.rows(label, [value])))
        # Gradients of this shard's mean, which is weighted later on; what it owes to other shards has their weights.
        return finish(list(self._exchange.rows(label, [value * self._weight]) / self._weight))

    def note(self, seconds: float) -> None:
        """Nobody asks for it here."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "LoopStatisticsExchange":
        """A copy of a model (an average of its weights, say) meets where the model does."""
        return self
