"""What torch gives: checked, and as the flat tensors that collectives work on.

flattened(tensor)                       # its numbers in order; a copy only if they do not lie so
room = room_for(tensor); ...; write(tensor, room)
"""

from collections.abc import Sequence
from typing import Any

import torch

from unisono.errors import UserError
from unisono.torch.calls import Tensor, dtype_name, op_name, reduction


def check_tensor(tensor: Tensor) -> None:
    """Refuses what does not lie in memory as plain numbers."""
    if tensor.device.type != "cpu":
        raise UserError(
            f"the backend unisono was given a tensor on {tensor.device}", hint="it is for CPUs; GPUs use nccl"
        )
    if tensor.layout is not torch.strided:
        raise UserError(
            "the backend unisono was given a sparse tensor",
            hint="nn.Embedding(..., sparse=False), or tensor.to_dense()",
        )


def flattened(tensor: Tensor) -> Tensor:
    """The numbers of a tensor in order, in one row; a copy only if they do not lie so."""
    return _row(tensor.data.resolve_conj().resolve_neg().contiguous())


def room_for(tensor: Tensor) -> Tensor:
    """Where the numbers of a tensor can be written in order: itself if they lie so."""
    found = tensor.data
    plain = found.is_contiguous() and not found.is_neg() and not found.is_conj()
    return _row(found) if plain else found.new_empty(found.numel())


def _row(tensor: Tensor) -> Tensor:
    """One of at most one element is contiguous to torch whatever its strides are, and keeps them in a view."""
    return tensor.view(-1) if tensor.numel() > 1 else tensor.as_strided((tensor.numel(),), (1,))


def check_writable(tensor: Tensor) -> None:
    """Refuses a tensor whose elements share memory, before others meet this rank."""
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        raise UserError(
            "a collective was given an expanded tensor to write to, whose elements share memory",
            hint="give tensor.contiguous() or tensor.clone()",
        )


def write(tensor: Tensor, flat: Tensor) -> None:
    """Puts them there, unless they are."""
    if flat.data_ptr() != tensor.data_ptr() and flat.numel():
        tensor.data.copy_(flat.view(tensor.shape))


def as_list(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def only_one(tensors: Any) -> Tensor:
    found = as_list(tensors)
    if len(found) != 1:
        raise UserError(f"a message of {len(found)} tensors", hint="send one tensor at a time")
    check_tensor(found[0])
    return found[0]


def checked_op(opts: Any, tensors: Sequence[Tensor]) -> str:
    """The operation of options, which may also be given as such; a `UserError` if these cannot be reduced so."""
    op = "sum" if opts is None else op_name(getattr(opts, "reduceOp", opts))
    for tensor in tensors:
        reduction(op, tensor.dtype)
    return op


def root_of(opts: Any) -> int:
    return int(opts) if isinstance(opts, int) else int(opts.rootRank)


def check_parts(parts: Sequence[Tensor], size: int, name: str) -> None:
    if len(parts) != size:
        raise UserError(f"{name} was given {len(parts)} tensors for {size} ranks", hint="give one for each rank")
    for part in parts:
        check_tensor(part)


def check_size(tensor: Tensor, elements: int, what: str, other: str, dtype: torch.dtype | None = None) -> None:
    """Refuses a tensor of another size or type than it must have. dtype: that of the tensors it goes with."""
    check_tensor(tensor)
    if tensor.numel() != elements:
        raise UserError(
            f"{what} has {tensor.numel()} elements, {other} {'has' if other[-1] != 's' else 'have'} {elements}",
            hint="make them equally large",
        )
    if dtype is not None and tensor.dtype != dtype:
        raise UserError(
            f"{what} is of {dtype_name(tensor.dtype)}, {other} {'is' if other[-1] != 's' else 'are'} of "
            f"{dtype_name(dtype)}",
            hint="give tensors of one type",
        )


def split_rows(flat: Tensor, tensor: Tensor, splits: Sequence[int] | None, size: int, what: str) -> list[Tensor]:
    """Parts of a tensor along its first dimension, one for each rank."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % size:
            raise UserError(
                f"the {what} of all_to_all has {rows} rows for {size} ranks", hint=f"give {what}_split_sizes"
            )
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise UserError(f"{what}_split_sizes {list(splits)} for {rows} rows and {size} ranks", hint="one for each rank")
    width = tensor.numel() // rows if rows else 0
    return list(torch.split(flat, [count * width for count in splits]))
