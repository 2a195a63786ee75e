"""The collectives of a process group over the memory of a machine, and between the first ranks of several.

The one idea: the result of a reduction follows the reduction tree over all ranks of the group
(`arena/reduction_tree.py`), so it does not depend on which machine a rank is on. On one machine every rank combines its
chunk of the slots; on several, each machine first combines its ranks into whole nodes of the tree, first ranks exchange
those, and every rank finishes the tree.

    for _ in Collectives(memory, links).all_reduce(tensor, "sum"): ...wait a little...

Each is a generator that yields while it waits. Tensors are flat, contiguous and without gradients.

Limits: `reduce_scatter` between machines moves as many bytes as an all-reduce.
"""

from collections.abc import Sequence
from typing import final

import torch

from unisono.arena.reduction_tree import Span, chunk_bounds, combine, tree_nodes, tree_over
from unisono.torch.calls import AVERAGE, Call, Reduction, Tensor, call, divide, dtype_name, reduction
from unisono.torch.machine_links import MachineLinks
from unisono.torch.machine_memory import MachineMemory, Steps

_SMALL_BYTES = 512 * 1024
"""Of all ranks together. Up to here everyone combines everything: a meeting saved is worth more than sums saved."""


@final
class Collectives:
    """Those of one group. links: to the other machines, if there are any."""

    def __init__(self, memory: MachineMemory, links: MachineLinks | None) -> None:
        self._memory, self._links = memory, links
        self._rank, self._size = memory.rank, memory.size
        self._index, self._near = memory.members.index(memory.rank), len(memory.members)
        machines = [memory.members] if links is None else links.machines
        self._spans = [nodes_of(members, self._size) for members in machines]
        flat = sorted(span for spans in self._spans for span in spans)
        self._tops, self._tree = [low for low, _ in flat], tree_over(tuple(flat))

    # -- the usual case: a short tensor, and all ranks on one machine. The first half is done at once, and the second,
    # too, if the others are here; if not, it is what these return.

    def is_short(self, tensor: Tensor) -> bool:
        """Whether `all_reduce_now` and `broadcast_now` are for it."""
        return self._links is None and 0 < tensor.nbytes * self._size <= _SMALL_BYTES

    def all_reduce_now(self, tensor: Tensor, op: str) -> Steps | None:
        """As `all_reduce`; what is left of it."""
        called = call("all_reduce", tensor.numel(), dtype_name(tensor.dtype), op)
        parts = self._memory.slots(tensor.dtype, tensor.numel())
        parts[self._rank].copy_(tensor)
        if not self._memory.arrive(called):
            return self._end_of_reduce(tensor, parts, op, called)
        self._reduce(tensor, parts, op)
        return None

    def _end_of_reduce(self, tensor: Tensor, parts: Sequence[Tensor], op: str, called: Call) -> Steps:
        yield from self._memory.rest_of_meeting(called)
        self._reduce(tensor, parts, op)

    def _reduce(self, tensor: Tensor, parts: Sequence[Tensor], op: str) -> None:
        combine(parts, tensor, reduction(op, tensor.dtype), None, _empty)
        if op == AVERAGE:
            divide(tensor, self._size)

    def broadcast_now(self, tensor: Tensor, root: int) -> Steps | None:
        """As `broadcast`; what is left of it."""
        called = call("broadcast", tensor.numel(), dtype_name(tensor.dtype), f"from rank {root}")
        given = self._memory.slots(tensor.dtype, tensor.numel())[root]
        if self._rank == root:
            given.copy_(tensor)
        if not self._memory.arrive(called):
            return self._end_of_broadcast(tensor, given, root, called)
        if self._rank != root:
            tensor.copy_(given)
        return None

    def _end_of_broadcast(self, tensor: Tensor, given: Tensor, root: int, called: Call) -> Steps:
        yield from self._memory.rest_of_meeting(called)
        if self._rank != root:
            tensor.copy_(given)

    # -- reductions

    def all_reduce(self, tensor: Tensor, op: str, name: str = "all_reduce", root: int = -1) -> Steps:
        """In place; root: the only rank that gets the result, if one is named."""
        detail = op if root < 0 else f"{op}, to rank {root}"
        called = call(name, tensor.numel(), dtype_name(tensor.dtype), detail)
        function = reduction(op, tensor.dtype)
        average = op == AVERAGE
        if not tensor.numel():
            yield from self._everybody(called)
        for start, stop in self._memory.pieces(tensor.numel(), tensor.element_size()):
            piece = tensor[start:stop]
            wanted = root in (-1, self._rank)
            if self._links is not None:
                yield from self._reduce_between(self._links, piece, function, called, wanted=wanted)
            elif self.is_short(piece):
                yield from self._reduce_small(piece, function, called, wanted=wanted)
            else:
                yield from self._reduce_large(piece, function, called, wanted=wanted)
            if average and wanted:
                divide(piece, self._size)

    def _reduce_small(self, piece: Tensor, function: Reduction, called: Call, *, wanted: bool) -> Steps:
        parts = self._memory.slots(piece.dtype, len(piece))
        parts[self._rank].copy_(piece)
        yield from self._memory.meet(called)
        if wanted:
            combine(parts, piece, function, None, _empty)

    def _reduce_large(self, piece: Tensor, function: Reduction, called: Call, *, wanted: bool) -> Steps:
        """Each rank combines one chunk, its own share read from where it is, and leaves the result in its slot."""
        parts = self._memory.slots(piece.dtype, len(piece))
        low, high = chunk_bounds(len(piece), self._size, self._rank)
        mine = parts[self._rank]
        mine[:low].copy_(piece[:low])
        mine[high:].copy_(piece[high:])
        yield from self._memory.meet(called)
        chunks = [part[low:high] for part in parts]
        result, chunks[self._rank] = chunks[self._rank], piece[low:high]
        combine(chunks, result, function, None, _empty)
        yield from self._memory.meet(called)
        if wanted:
            for peer in range(self._size):
                low, high = chunk_bounds(len(piece), self._size, peer)
                piece[low:high].copy_(parts[peer][low:high])

    def _reduce_between(
        self, links: MachineLinks, piece: Tensor, function: Reduction, called: Call, *, wanted: bool
    ) -> Steps:
        """Whole nodes of the tree here, in the slot of the first rank of each; then those of all machines."""
        parts = self._memory.slots(piece.dtype, len(piece))
        parts[self._rank].copy_(piece)
        yield from self._memory.meet(called)
        low, high = chunk_bounds(len(piece), self._near, self._index)
        for first, last in self._spans[links.machine]:
            if last - first > 1 and high > low:
                chunks = [part[low:high] for part in parts[first:last]]
                combine(chunks, chunks[0], function, None, _empty)
        yield from self._memory.meet(called)
        if self._index == 0:
            tops = [[parts[low] for low, _ in spans] for spans in self._spans]
            yield from links.exchange(tops, called.stamp)
        yield from self._memory.meet(called)
        if wanted:
            combine([parts[low] for low in self._tops], piece, function, self._tree, _empty)

    def reduce_scatter(self, tensor: Tensor, out: Tensor, op: str) -> Steps:
        """tensor: one part for each rank, all as long as `out`, which gets the reduction of this rank's part."""
        if self._links is not None:
            whole = tensor.clone()
            yield from self.all_reduce(whole, op, "reduce_scatter")
            out.copy_(whole[self._rank * len(out) : (self._rank + 1) * len(out)])
            return
        called = call("reduce_scatter", tensor.numel(), dtype_name(tensor.dtype), op)
        function = reduction(op, tensor.dtype)
        if not len(out):
            yield from self._everybody(called)
        rows = tensor.view(self._size, len(out))
        for start, stop in self._memory.pieces(len(out), self._size * tensor.element_size()):
            width = stop - start
            slots = self._memory.slots(tensor.dtype, self._size * width)
            parts = [slot.view(self._size, width) for slot in slots]
            parts[self._rank].copy_(rows[:, start:stop])
            yield from self._memory.meet(called)
            piece = out[start:stop]
            combine([part[self._rank] for part in parts], piece, function, None, _empty)
            if op == AVERAGE:
                divide(piece, self._size)

    # -- moving data

    def broadcast(self, tensor: Tensor, root: int) -> Steps:
        """Fills the tensor of every rank with that of `root`."""
        data = _as_bytes(tensor)
        called = call("broadcast", tensor.numel(), dtype_name(tensor.dtype), f"from rank {root}")
        if not len(data):
            yield from self._everybody(called)
        for start, stop in self._memory.pieces(len(data), 1):
            slots = self._memory.slots(torch.uint8, stop - start)
            if self._rank == root:
                slots[root].copy_(data[start:stop])
            yield from self._gathered(slots, called, (root,))
            if self._rank != root:
                data[start:stop].copy_(slots[root])

    def all_gather(self, tensor: Tensor, outputs: Sequence[Tensor], name: str = "all_gather", root: int = -1) -> Steps:
        """outputs: one for each rank, as long as `tensor`; none on ranks that get nothing."""
        data, rows = _as_bytes(tensor), [_as_bytes(out) for out in outputs]
        detail = "" if root < 0 else f"to rank {root}"
        called = call(name, tensor.numel(), dtype_name(tensor.dtype), detail)
        if not len(data):
            yield from self._everybody(called)
        for start, stop in self._memory.pieces(len(data), 1):
            slots = self._memory.slots(torch.uint8, stop - start)
            slots[self._rank].copy_(data[start:stop])
            yield from self._gathered(slots, called)
            for row, slot in zip(rows, slots, strict=False):
                row[start:stop].copy_(slot)

    def scatter(self, inputs: Sequence[Tensor], out: Tensor, root: int) -> Steps:
        """inputs: one for each rank, on `root`; none elsewhere."""
        data, rows = _as_bytes(out), [_as_bytes(part) for part in inputs]
        called = call("scatter", out.numel(), dtype_name(out.dtype), f"from rank {root}")
        if not len(data):
            yield from self._everybody(called)
        for start, stop in self._memory.pieces(len(data), 1):
            slots = self._memory.slots(torch.uint8, stop - start)
            for row, slot in zip(rows, slots, strict=False):
                slot.copy_(row[start:stop])
            yield from self._gathered(slots, called, range(self._size), source=root)
            data[start:stop].copy_(slots[self._rank])

    def barrier(self, called: Call) -> Steps:
        """Returns when all have called it."""
        yield from self._everybody(called)

    def _everybody(self, called: Call) -> Steps:
        """All ranks of all machines meet."""
        yield from self._gathered(self._memory.slots(torch.uint8, 0), called, ())

    def _gathered(
        self, slots: Sequence[Tensor], called: Call, ranks: Sequence[int] | None = None, *, source: int = -1
    ) -> Steps:
        """Returns when the slots of `ranks` (all of them if None) are here, from wherever they were filled.

        source: the rank that has filled them all, if each has not filled its own.
        """
        yield from self._memory.meet(called)
        if self._links is None:
            return
        if self._index == 0:
            chosen = range(self._size) if ranks is None else ranks
            given: list[list[Tensor]] = [[] for _ in self._links.machines]
            for rank in chosen:
                given[self._links.machine_of[rank if source < 0 else source]].append(slots[rank])
            yield from self._links.exchange(given, called.stamp)
        yield from self._memory.meet(called)


def nodes_of(members: Sequence[int], size: int) -> list[Span]:
    """The fewest whole nodes of the tree over `size` ranks that make up these ranks."""
    found: list[Span] = []
    first = last = members[0]
    for member in [*members[1:], -1]:
        if member != last + 1:
            found += tree_nodes(size, first, last + 1)
            first = member
        last = member
    return found


def _empty(count: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(count, dtype=dtype)


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)
