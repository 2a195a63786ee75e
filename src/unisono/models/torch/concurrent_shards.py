"""ConcurrentShards: the shards of one rank computed at once, for batch norms that are synchronised over all shards of
a batch.

The one idea: each shard is a piece of work that stops at every batch norm and goes on when all have come
(`cooperative_threads.py`). The module is one, so whoever goes on must find it as he left it: buffers and random
numbers lie in a place of its own.

    together = ConcurrentShards(module); together.run(works, shard_states, exchange)

Only one shard is ever computing, each alone and in its own shape, so its bits do not depend on its neighbours.

Limits: a tensor that a module keeps as a plain attribute between two of its layers is seen by all shards.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, final

import numpy as np
import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.base import Array, Exchange
from unisono.models.torch.cooperative_threads import CooperativeThreads
from unisono.models.torch.random_state import Kinds, generator_states, restore_states
from unisono.models.torch.sync_batchnorm import row_width, synchronise

T = TypeVar("T")


@final
class ShardState:
    """One shard's buffers, and its places in the streams of random numbers of these kinds.

    The buffers are tensors of its own, which take the place of the module's while it is this shard's turn: graphs may
    hold them until the backward, and other shards must not touch them.
    """

    def __init__(self, module: nn.Module, kinds: Kinds) -> None:
        own: dict[Tensor, Tensor] = {}
        self._homes: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
        for part in module.modules():
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    self._homes.append((part._buffers, name, own.setdefault(buffer, buffer.clone())))
        self._values = [(mine.numpy(), buffer.detach().numpy()) for buffer, mine in own.items()]
        self._left: list[Tensor | None] = []
        self._kinds, self._random = kinds, generator_states(kinds)

    def begin(self) -> None:
        """The module holds the committed buffers: they become this shard's."""
        for values, committed in self._values:
            np.copyto(values, committed)
        for owner, name, mine in self._homes:
            owner[name] = mine

    def keep(self) -> None:
        self._left = [owner[name] for owner, name, _ in self._homes]  # some may have been replaced
        self._random = generator_states(self._kinds)

    def back(self) -> None:
        for (owner, name, _), buffer in zip(self._homes, self._left, strict=True):
            owner[name] = buffer
        restore_states(self._random)


@final
class ConcurrentShards:
    """Changes the batch norms of `module`; a `UserError` if it has none."""

    def __init__(self, module: nn.Module, precision: str) -> None:
        self._turns = CooperativeThreads()
        self._exchange: Exchange | None = None
        self._noted_s = 0.0
        self.width = row_width(module)
        """See `Model.exchange_width`."""
        if not self.width:
            raise UserError(
                f"--sync-batchnorm, and {type(module).__name__} has no batch norm", hint="leave --sync-batchnorm out"
            )
        if precision == "fp16":
            raise UserError(
                "--sync-batchnorm with --precision fp16: each shard looks for a factor of its own, one that its "
                "gradients can bear, but synchronised shards are derived as one",
                hint="use --precision bf16, or fp32",
            )
        self.equal = self.include(module)
        """The buffers that every shard of a batch leaves with the same values."""

    def include(self, module: nn.Module) -> set[str]:
        """Its batch norms meet here, too; see `synchronise`."""
        return synchronise(module, self)

    @property
    def spent_s(self) -> float:
        """What synchronising took so far: the layers, handing over, meetings."""
        return self._turns.spent_s + self._noted_s

    def note(self, seconds: float) -> None:
        """Spent in a layer."""
        self._noted_s += seconds

    def combine(self, label: int, value: Array, finish: Callable[[Sequence[Array]], T]) -> T:
        """Of all shards of the batch, here and on other ranks."""
        return self._turns.combine(label, value, partial(self._finish, label, finish))

    def run(
        self, works: Sequence[Callable[[], object]], shard_states: Sequence[ShardState], exchange: Exchange | None
    ) -> None:
        """One piece of work a shard; exchange None: there are no other ranks."""
        self._exchange = exchange
        try:
            self._turns.run(
                [partial(_alike, torch.get_num_threads(), work) for work in works],
                keep=lambda number: shard_states[number].keep(),
                back=lambda number: shard_states[number].back(),
            )
        finally:
            self._exchange = None

    def _finish(self, label: int, finish: Callable[[Sequence[Array]], T], values: Sequence[Array]) -> T:
        return finish(values if self._exchange is None else list(self._exchange.rows(label, values)))


def _alike(threads: int, work: Callable[[], object]) -> None:
    """Under the caller's settings, whichever thread it is in: libraries such as MKL have a number of threads for each,
    which a new one takes from torch only when it is asked for, and other numbers give other bits."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    with _without_cache():
        work()


@contextmanager
def _without_cache() -> Iterator[None]:
    """autocast keeps 16-bit copies of weights for all threads; a shard must not go through another one's graph."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
