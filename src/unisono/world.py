"""World: what user code holds. Its rank, its size, the communicator to the others, and a model that all of them train.

    def work(world):
        model, optimizer = world.share(model, optimizer)             # parameters move into memory that all ranks share
        for epoch in world.epochs(5):
            for batch in world.batches((x, y), batch_size=256):
                for x, y in batch:                                   # this rank's shards
                    world.backward(F.cross_entropy(model(x), y))
                optimizer.step()                                     # sum, update, commit

    unisono.run(work, ranks=4)          # starts 4 processes here
    world = unisono.join()              # or: is one of those that mpirun, torchrun or srun started

When a rank of `unisono.run` dies after `share`, the others go on without it. From the next step on `rank`, `size` and
`comm` are those of the ranks that made it, numbered from 0 without gaps. In between, a collective that needs the dead
rank's part raises `RankLost`, on all others and at once; from then on ranks are renumbered, too. So all ranks count
alike at any line of the program, and what was shared out by `rank` and `size` is never added up with a part missing.

Limits: a world shares one model, whose ranks are on one node.
"""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

from unisono.comm.base import Communicator
from unisono.errors import AskedToEnd, UserError
from unisono.messages.rank_reports import SendReport

if TYPE_CHECKING:
    import torch

    from unisono.loop.batches import Batches, Epochs
    from unisono.loop.shared_model import ModelSharing
    from unisono.loop.shared_optimizer import SharedOptimizer


@final
class World:
    """The processes that train together, as one of them sees it."""

    def __init__(
        self,
        comm: Communicator,
        report: Callable[[Any], None] = lambda value: None,
        announce: SendReport | None = None,
    ) -> None:
        """announce: how the process that started this rank learns of a shared model; see
        `supervise/loop_supervisor.py`."""
        self.comm, self._announce = comm, announce
        self.report = report
        """Hands a value to the process that started this rank, while the rank goes on; see `unisono.run`."""
        self._sharing: ModelSharing | None = None
        self._closed = False

    @property
    def rank(self) -> int:
        """From 0 to `size` - 1. It is lower when a rank before it was lost: to name files after it, note it early."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """How many ranks there are: those who made the last step, once a model is shared."""
        return self.comm.size

    @property
    def first(self) -> bool:
        """Whether this rank is the one that speaks for all: rank 0, or the next that lives."""
        return self.comm.rank == 0 if self._sharing is None else self._sharing.member.first

    def share(
        self,
        model: "torch.nn.Module",
        optimizer: "torch.optim.Optimizer",
        *,
        clip: float = 0.0,
        shards: int = 0,
        sync_batchnorm: bool = False,
    ) -> "tuple[torch.nn.Module, SharedOptimizer]":
        """Moves a torch module into memory that all ranks share; the module, and an optimizer that is stepped together.

        Every rank calls it with equal modules. clip: the largest global norm of the gradient, 0 for none. shards:
        slices of each batch, which decide the bits, not the ranks; 0: 8, or as many as there are ranks. sync_batchnorm:
        batch norms see the whole batch instead of a shard; there are as many shards as ranks then, so other numbers of
        ranks give other bits, and the death of a rank ends the run.
        """
        from unisono.loop.shared_model import ModelSharing, SharingOptions

        self._check_open("share")
        if self._sharing is not None:
            raise UserError("world.share was called twice", hint="a world shares one model; put both into one module")
        if shards < 0 or 0 < shards < self.size:
            raise UserError(
                f"{shards} shards for {self.size} ranks leave ranks without work",
                hint=f"give {self.size} or more, or leave shards out",
            )
        if sync_batchnorm and shards not in (0, self.size):
            raise UserError(
                f"sync_batchnorm=True with {shards} shards on {self.size} ranks: a rank goes through its shards one by "
                "one, and batch norms wait for all shards of a batch",
                hint="leave shards out, which gives each rank one; `unisono train --sync-batchnorm` takes any number",
            )
        count = shards or (self.size if sync_batchnorm else max(8, self.size))
        self._sharing = ModelSharing(
            self.comm, model, optimizer, SharingOptions(count, clip, sync_batchnorm), self._announce
        )
        return model, self._sharing.optimizer

    def epochs(self, count: int) -> "Epochs":
        """For `for epoch in world.epochs(5)`, around a loop over `batches`: range(5), less the epochs that are done.

        A program that goes on from a snapshot of `unisono.keep` begins with the epoch that the snapshot was made in.
        Nothing of those before it runs again; of this one, all but the batches that are done.
        """
        from unisono.loop.batches import Epochs

        self._check_open("epochs")
        sharing = self._need_sharing("epochs")
        _check_least("epochs", count, 0)
        return Epochs(sharing, count)

    def batches(
        self,
        data: Any,
        batch_size: int,
        epochs: int = 1,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        workers: int = 0,
    ) -> "Batches":
        """The global batches of `epochs` passes over `data`: tensors, a tuple of them, or a map-style dataset.

        batch_size: of all ranks together. workers: processes that make the items of a dataset, for each rank. Going
        through them again goes on with the next epoch, shuffled anew.
        """
        from unisono.data.shards import ShardPlan
        from unisono.loop.batches import Batches
        from unisono.loop.samples import open_samples

        self._check_open("batches")
        sharing = self._need_sharing("batches")
        for name, number, least in (("batch_size", batch_size, 1), ("epochs", epochs, 0), ("workers", workers, 0)):
            _check_least(name, number, least)
        samples = open_samples(data, workers)
        if batch_size < sharing.member.count:
            raise UserError(
                f"a batch of {batch_size} sample{'s' * (batch_size > 1)} for {sharing.member.count} ranks leaves ranks "
                "without work",
                hint="use a larger batch_size, or fewer ranks",
            )
        batch = batch_size if drop_last else min(batch_size, len(samples))
        plan = ShardPlan(len(samples), batch, min(sharing.shards, batch_size), seed, drop_last)
        return Batches(sharing, samples, plan, epochs, shuffle)

    def backward(self, loss: "torch.Tensor", weight: float | None = None) -> None:
        """Instead of loss.backward(): the mean loss of the shard that the loop is at.

        weight: how many terms the mean is over, if not the samples (tokens that count, say).
        """
        self._check_open("backward")
        sharing = self._need_sharing("backward")
        if sharing.batch is None:
            raise UserError("world.backward outside a batch", hint="for x, y in batch: world.backward(loss)")
        sharing.batch.backward(loss, weight)

    def _need_sharing(self, what: str) -> "ModelSharing":
        if self._sharing is None:
            raise UserError(f"world.{what} before world.share", hint="model, optimizer = world.share(model, optimizer)")
        return self._sharing

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise UserError(f"world.{what} after the world was closed", hint="use it inside `with unisono.join()`")

    @property
    def sharing(self) -> "ModelSharing":
        """What `share` made: for those who build on it, such as `unisono.keep`."""
        return self._need_sharing("sharing")

    def close(self) -> None:
        """Leaves the world."""
        self._closed = True
        try:
            if self._sharing is not None:
                self._sharing.close()
        finally:
            self.comm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, AskedToEnd):  # then all leave together
            self.comm.abort_peers(error)
        catching_up = self._sharing is not None and self._sharing.callbacks.catching_up
        self.close()
        if catching_up and isinstance(error, NameError):
            raise UserError(
                f"{error}: epochs that were done before the program was started again give no batch",
                hint="`for epoch in world.epochs(n)` begins with the epoch that goes on, from the same snapshot; "
                "elsewhere ask `checkpoint.catching_up` of `checkpoint = unisono.keep(...)`",
            ).with_traceback(trace) from None

    def __repr__(self) -> str:
        return f"World(rank={self.rank}, size={self.size}, transport={self.comm.transport!r})"


def _check_least(name: str, number: object, least: int) -> None:
    if not isinstance(number, int) or number < least:
        raise UserError(f"{name} is {number!r}", hint=f"give a whole number of {least} or more")
