"""Samples: the shards of a user's data as torch tensors, whatever the data are.

The one idea: a shard is made from its key (seed, epoch, step, shard) alone, so its samples, and what is drawn at random
to make them, do not depend on which rank or which worker makes them.

    source = open_samples((x, y), workers=0)
    for x, y in source.shards(wanted): ...                  # wanted: (key, sample numbers) of the shards, in order

In memory: a tensor, a tuple of tensors, arrays, or a TensorDataset: rows are picked, nothing is collated. Any other
map-style dataset: items are made (in `workers` processes, ahead of time) and collated as DataLoader does.
Limits: an IterableDataset has no numbered items, so its order cannot be the same on all ranks: it is refused.
"""

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

import numpy as np
import torch
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, default_collate

from unisono.aligned import ALIGNMENT_BYTES
from unisono.errors import UserError
from unisono.models.torch.random_state import seed_from
from unisono.rng import generator

Key = tuple[int, ...]
"""(seed, epoch, step, shard)."""
DIGEST_ROWS = 64
"""Rows that a digest is of, spread over all."""
Wanted = tuple[Key, np.ndarray]
"""A shard's key and the numbers of its samples."""


def seed_all(rng: np.random.Generator) -> None:
    """Torch's generator, NumPy's old one and Python's: user code draws from whichever it likes."""
    seed_from(rng)
    np.random.seed(int(rng.integers(2**32)))
    random.seed(int(rng.integers(2**32)))


class Samples(ABC):
    """What a rank takes its shards from."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def shards(self, wanted: Iterable[Wanted]) -> Iterator[Any]:
        """The shards of these keys and sample numbers, in this order, made as they are asked for."""

    @abstractmethod
    def digest(self) -> int:
        """The same number for the same samples, as far as that can be told in a moment."""


@final
class InMemory(Samples):
    """Tensors of equal lengths."""

    def __init__(self, tensors: Sequence[torch.Tensor], *, single: bool) -> None:
        self._tensors, self._single = tensors, single
        lengths = {len(tensor) for tensor in tensors}
        if len(lengths) != 1:
            raise UserError(f"the data have {sorted(lengths)} rows", hint="give tensors of one length")

    def __len__(self) -> int:
        return len(self._tensors[0])

    def shards(self, wanted: Iterable[Wanted]) -> Iterator[Any]:
        for _, indices in wanted:
            rows = torch.from_numpy(indices)
            found = tuple(tensor.index_select(0, rows) for tensor in self._tensors)
            yield found[0] if self._single else found

    def digest(self) -> int:
        rows = torch.linspace(0, max(len(self) - 1, 0), min(len(self), DIGEST_ROWS)).long()
        found = hashlib.blake2b(digest_size=7)
        for tensor in self._tensors:
            found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.detach().index_select(0, rows).contiguous().view(-1).view(torch.uint8).numpy().data)
        return int.from_bytes(found.digest())


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on a 64-byte border, as torch's own allocator places it: bits may depend on addresses."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT_BYTES else tensor


@final
class _Shards(Dataset[Any]):
    """One item is one shard: random numbers are keyed before it is made."""

    def __init__(self, items: Dataset[Any]) -> None:
        self._items = items

    def __getitem__(self, wanted: Wanted) -> Any:
        key, indices = wanted[0], wanted[1].tolist()
        seed_all(generator(key[0], "samples", *key[1:]))
        many = getattr(self._items, "__getitems__", None)
        found = default_collate(many(indices) if many is not None else [self._items[index] for index in indices])
        return tree_map_only(torch.Tensor, _aligned, found)


@final
class Made(Samples):
    """Items of a map-style dataset, made by this process or, ahead of time, by workers."""

    def __init__(self, items: Dataset[Any], workers: int) -> None:
        self._items, self._workers = items, workers
        self._shards = _Shards(items)

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def shards(self, wanted: Iterable[Wanted]) -> Iterator[Any]:
        if not self._workers:
            return (self._shards[each] for each in wanted)
        return iter(DataLoader(self._shards, sampler=_Asked(wanted), batch_size=None, num_workers=self._workers))

    def digest(self) -> int:
        return 0  # to make an item may take long, and draw random numbers


@final
class _Asked(Sampler[Any]):
    """What is wanted, as a sampler."""

    def __init__(self, wanted: Iterable[Wanted]) -> None:
        self._wanted = wanted

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self._wanted)


def open_samples(data: Any, workers: int = 0) -> Samples:
    """What `world.batches` was given, as `Samples`."""
    if isinstance(data, DataLoader):
        raise UserError(
            "world.batches was given a DataLoader", hint="give its dataset: world.batches(loader.dataset, ...)"
        )
    if isinstance(data, IterableDataset):
        raise UserError(
            "world.batches was given an IterableDataset: its items have no numbers, so ranks cannot agree on an order",
            hint="give a map-style dataset, with __getitem__ and __len__",
        )
    if isinstance(data, TensorDataset):
        return InMemory(data.tensors, single=False)
    if isinstance(data, torch.Tensor | np.ndarray):
        return InMemory([torch.as_tensor(data)], single=True)
    if isinstance(data, tuple | list) and data and all(isinstance(part, torch.Tensor | np.ndarray) for part in data):
        return InMemory([torch.as_tensor(part) for part in data], single=False)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return Made(data, workers)
    raise UserError(
        f"world.batches was given a {type(data).__name__}",
        hint="give tensors, a tuple of them, or a map-style dataset",
    )
