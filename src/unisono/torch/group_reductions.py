"""GroupReductions: the methods of a process group that add up: all_reduce, reduce and reduce_scatter.

torch has an older and a newer name for some of them, and calls both.
"""

from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from unisono.errors import Mismatch, UserError
from unisono.torch.calls import Tensor, call
from unisono.torch.group_operations import GroupOperations
from unisono.torch.machine_memory import Steps
from unisono.torch.tensor_checks import (
    as_list,
    check_parts,
    check_size,
    checked_op,
    flattened,
    root_of,
    write,
)
from unisono.torch.work import Operation


class GroupReductions(GroupOperations):
    """See `process_group.py`."""

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work:
        many = as_list(tensors)
        op = checked_op(opts, many)
        if self._is_usual(many):
            return self._at_once(self._collectives.all_reduce_now, many[0], op, opts, timeout)
        if any(tensor.is_sparse for tensor in many):
            return self._reduce_sparse(many, op, opts)
        return self._collective(
            lambda flat: self._collectives.all_reduce(flat, op), many, many, "all_reduce", opts, timeout
        )

    allreduce_coalesced = allreduce

    def _reduce_sparse(self, tensors: Sequence[Tensor], op: str, opts: Any) -> Operation:
        """Sums of embeddings' gradients: everybody gets everybody's indices and values, and adds them by rank."""
        if op != "sum" or not all(tensor.is_sparse and tensor.device.type == "cpu" for tensor in tensors):
            raise UserError(
                f"{op} of sparse tensors", hint="the backend unisono sums sparse tensors of CPUs; tensor.to_dense()"
            )

        def steps() -> Steps:
            for tensor in tensors:
                own = tensor.detach().coalesce()
                indices, values = own.indices(), own.values()
                shape = torch.tensor([*tensor.shape, own.sparse_dim(), values.shape[0]])
                shapes = [torch.empty_like(shape) for _ in range(self._size)]
                yield from self._collectives.all_gather(shape, shapes)
                if any(not torch.equal(other[:-1], shape[:-1]) for other in shapes):
                    raise Mismatch(
                        f"ranks gave sparse tensors of shapes {[other[:-2].tolist() for other in shapes]}",
                        hint="give equal shapes on every rank",
                    )
                most = max(int(other[-1]) for other in shapes)
                all_indices = yield from self._gathered_rows(indices.t(), most)
                all_values = yield from self._gathered_rows(values, most)
                counts = [int(other[-1]) for other in shapes]
                rows = [part[:count] for part, count in zip(all_indices, counts, strict=True)]
                parts = [part[:count] for part, count in zip(all_values, counts, strict=True)]
                total = torch.sparse_coo_tensor(
                    torch.cat(rows).t(), torch.cat(parts), tensor.shape, check_invariants=False
                )
                with torch.no_grad():
                    tensor.copy_(total.coalesce())

        return self._queue.start(
            steps(), call("all_reduce of a sparse tensor"), self._timeout(opts), list(tensors), background=True
        )

    def _gathered_rows(self, rows: Tensor, most: int) -> Generator[None, None, list[Tensor]]:
        """Those of all ranks, each as if it had the most."""
        padded = rows.new_zeros((most, *rows.shape[1:]))
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in range(self._size)]
        yield from self._collectives.all_gather(flattened(padded), [part.view(-1) for part in found])
        return found

    def reduce(self, tensors: Any, opts: Any = None, *rest: Any) -> Operation:
        many = as_list(tensors)
        op, root = checked_op(opts, many), root_of(opts)
        written = many if root == self._rank else []
        return self._collective(
            lambda flat: self._collectives.all_reduce(flat, op, "reduce", root), many, written, "reduce", opts
        )

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Operation:
        out = as_list(outputs)
        op = checked_op(opts, out)
        groups = inputs if inputs and isinstance(inputs[0], list | tuple) else [inputs]
        for target, parts in zip(out, groups, strict=True):
            check_parts(parts, self._size, "reduce_scatter")
            own = parts[self._rank]
            check_size(own, target.numel(), f"part {self._rank} of reduce_scatter", "the output", target.dtype)

        def steps() -> Steps:
            for target, parts in zip(out, groups, strict=True):
                if any(part.numel() != target.numel() for part in parts):  # parts of different lengths
                    yield from self._reduce_parts(target, parts, op)
                    continue
                whole = torch.cat([flattened(part) for part in parts])
                yield from self._scattered(whole, target, op)

        return self._start(steps(), "reduce_scatter", opts, out)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Operation:
        return self._reduce_scatter_many([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Operation:
        return self._reduce_scatter_many(outputs, inputs, opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter_many(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any) -> Operation:
        op = checked_op(opts, outputs)
        for output, given in zip(outputs, inputs, strict=True):
            check_size(
                given, output.numel() * self._size, "the input of reduce_scatter", "all ranks' outputs", output.dtype
            )

        def steps() -> Steps:
            for output, given in zip(outputs, inputs, strict=True):
                yield from self._scattered(flattened(given), output, op)

        return self._start(steps(), "reduce_scatter", opts, list(outputs))

    def _reduce_parts(self, target: Tensor, parts: Sequence[Tensor], op: str) -> Steps:
        """Parts of different lengths: a reduction to each rank in turn."""
        for root, part in enumerate(parts):
            flat = flattened(part).clone()
            yield from self._collectives.all_reduce(flat, op, "reduce_scatter", root)
            if root == self._rank:
                write(target, flat)
