"""What ranks tell each other on entering a collective, and the errors when they differ or do not come.

Its one idea: before data move, every rank shows a short row of integers (which collective, and its arguments). Rows of
all ranks that are equal prove both that everybody is there and that everybody means the same. How rows travel is the
backend's affair; what is in them and what follows from them is written here once.

>>> check_rows("barrier", [row("barrier"), row("barrier")])

Limits: a row holds `AGREE_WORDS` integers of 64 bits; larger ones are compared modulo 2**64.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import final
from zlib import crc32

import numpy as np

from unisono.comm.base import AGREE_WORDS, DTYPES, OPS, disagreement, dtype_code
from unisono.errors import CommTimeout, RankLost, UserError

ARGUMENTS = {
    "barrier": "",
    "all_reduce": "elements, dtype, op",
    "broadcast": "bytes, dtype, root",
    "all_gather": "bytes, dtype",
    "gather": "bytes, dtype, root",
    "split": "colour",
    "agree": "values",
}
"""The collectives, and what the words of their rows mean."""

_KINDS = tuple(ARGUMENTS)

ROW_WORDS = 2 + AGREE_WORDS
"""Kind, number of values, values."""

Row = tuple[int, ...]


@lru_cache(maxsize=4096)
def row(kind: str, *values: int) -> Row:
    """What a rank shows on entering the collective `kind`: always `ROW_WORDS` integers."""
    padding = (0,) * (AGREE_WORDS - len(values))
    return (_KINDS.index(kind), len(values), *map(_wrap, values), *padding)


def kind_of(shown: Row) -> str:
    """Which collective a row speaks of."""
    return _KINDS[shown[0]]


def _wrap(value: int) -> int:
    return value if -(2**63) <= value < 2**63 else (value + 2**63) % 2**64 - 2**63


def check_rows(kind: str, rows: Sequence[Row], what: str = "") -> None:
    """Raises `Mismatch` unless all ranks entered the same collective with the same arguments."""
    if any(other != rows[0] for other in rows):
        check_kinds(rows)
        told = [_readable(kind, found[2 : 2 + found[1]]) for found in rows]
        raise disagreement(what or f"{kind} ({ARGUMENTS[kind]})", told)


def _readable(kind: str, values: Row) -> tuple[int | str, ...]:
    """Names instead of codes, where a code has one."""
    words = ARGUMENTS[kind].split(", ")
    names = {"dtype": DTYPES, "op": tuple(OPS)}
    return tuple(
        names[word][value] if word in names and value < len(names[word]) else value
        for word, value in zip_longest(words[: len(values)], values, fillvalue=0)
    )


def check_kinds(rows: Sequence[Row]) -> None:
    """Raises `Mismatch` unless all ranks entered the same collective, whatever its arguments."""
    if any(other[0] != rows[0][0] for other in rows):
        raise disagreement("which collective to enter", [(kind_of(found),) for found in rows])


def check_values(values: Sequence[int]) -> None:
    """Refuses more values than a row holds."""
    if len(values) > AGREE_WORDS:
        raise UserError(f"{len(values)} values are too many to agree on", hint=f"give at most {AGREE_WORDS}")


def check_colour(colour: int) -> None:
    """Refuses a colour that `split` does not know."""
    if colour < 0:
        raise UserError(f"colour {colour} is negative", hint="0 or more; equal on the ranks that shall be together")


@lru_cache
def reduced_code(dtype: np.dtype) -> int:
    """`dtype_code`, and refuses foreign byte order, which a backend would add up as garbage."""
    if not dtype.isnative:
        raise UserError(f"arrays of {dtype.str} have foreign byte order", hint="x.astype(x.dtype.newbyteorder('='))")
    return dtype_code(dtype)


@lru_cache
def any_code(dtype: np.dtype) -> int:
    """A number for any dtype, equal on every rank: moving needs no arithmetic, so nothing is refused."""
    if dtype.isnative and dtype.name in DTYPES:
        return DTYPES.index(dtype.name)
    return len(DTYPES) + crc32(dtype.str.encode())


def late_ranks_error(
    rank: int, what: str, timeout_s: float, missing: Iterable[int], *, option: str = "timeout_s"
) -> CommTimeout:
    """The error of a rank that waited in vain. option: by which the user allows a longer wait."""
    ranks = sorted(missing)
    who = f"rank {', '.join(map(str, ranks))}" if ranks else "an unidentified rank"
    return CommTimeout(
        f"waited {timeout_s:g} s in {what}; {who} did not arrive",
        missing=ranks,
        rank=rank,
        hint=f"see what that rank was doing, or allow a longer wait with {option}",
    )


_LAUNCHER = (
    "see what the launcher says about its end (killed? out of memory?), then start again: a run that has snapshots "
    "goes on with --resume"
)


def lost_rank_error(
    rank: int, what: str, gone: Iterable[int], *, names: Sequence[str] = (), hint: str = _LAUNCHER
) -> RankLost:
    """The error of a rank that waits for others whose process has ended. names: what to call them, if not by rank."""
    ranks = sorted(gone)
    called = names or [str(one) for one in ranks]
    who = f"rank {called[0]} is" if len(ranks) == 1 else f"ranks {', '.join(called)} are"
    return RankLost(f"{who} gone, so {what} cannot be completed", ranks=ranks, hint=hint, rank=rank)


@final
class RankErrors:
    """Of the rank in `slot` of an arena, for `arena/round.py`. rank_of: the number that users know a slot by."""

    def __init__(self, slot: int, rank_of: Callable[[int], int] = int) -> None:
        self._slot, self._rank_of = slot, rank_of

    def late(self, what: str, timeout_s: float, slots: Sequence[int]) -> CommTimeout:
        return late_ranks_error(self._rank_of(self._slot), what, timeout_s, map(self._rank_of, slots))

    def lost(self, what: str, slots: Sequence[int]) -> RankLost:
        return lost_rank_error(self._rank_of(self._slot), what, map(self._rank_of, slots))
