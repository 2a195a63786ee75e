"""What a rank calls, in words and as a number that ranks compare, and the reductions of torch by name.

The one idea: all that ranks must have in common in a collective is in one line of text, which is also what the error
says if they differ.

>>> call("all_reduce", 10, "float32", "sum").text
'all_reduce of 10 elements of float32 (sum)'
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import torch
from torch.distributed import ReduceOp

from unisono.errors import UserError

Tensor: TypeAlias = torch.Tensor
Reduction: TypeAlias = Callable[..., Tensor]

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
"""What collectives reduce. Data of other types are moved, not added."""

AVERAGE = "avg"

_REDUCTIONS: dict[str, Reduction] = {
    "sum": torch.add,
    AVERAGE: torch.add,  # and divided at the end
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
_NAMES = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: AVERAGE,
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
}
_BITWISE = ("band", "bor", "bxor")


def divide(tensor: Tensor, count: int) -> None:
    """The average of what was added up; of integers, cut towards zero."""
    exact = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    tensor.div_(count, rounding_mode=None if exact else "trunc")


class Call(NamedTuple):
    """What one rank calls. Ranks compare `stamp`."""

    name: str
    text: str
    stamp: int


@lru_cache(maxsize=4096)
def call(name: str, elements: int = -1, dtype: str = "", detail: str = "") -> Call:
    """A call of `name`; detail: the operation, or the rank at the root."""
    amount = f" of {elements} elements of {dtype}" if elements >= 0 else ""
    text = f"{name}{amount}{f' ({detail})' if detail else ''}"
    return Call(name, text, crc32(text.encode()) + 1)


@lru_cache(maxsize=256)
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def op_name(op: Any) -> str:
    """The name of a `ReduceOp`; a `UserError` if this backend does not have it."""
    if op == ReduceOp.SUM:  # most often
        return "sum"
    for known, name in _NAMES.items():
        if op == known:
            return name
    raise UserError(
        f"the backend unisono does not reduce with {op}", hint=f"it has {', '.join(_REDUCTIONS)}; scale the tensor"
    )


def reduction(name: str, dtype: torch.dtype) -> Reduction:
    """The function of an operation, or a `UserError` if numbers of this type cannot be reduced so."""
    if dtype not in DTYPES:
        raise UserError(
            f"tensors of {dtype_name(dtype)} cannot be reduced", hint="convert to a type of at least 16 bits, or uint8"
        )
    if name in _BITWISE and (dtype.is_floating_point or dtype.is_complex):
        raise UserError(f"{name} of {dtype_name(dtype)}", hint="bitwise operations are for integers and bool")
    if name == AVERAGE and dtype is torch.bool:
        raise UserError("the average of bool", hint="convert to float32")
    return _REDUCTIONS[name]
