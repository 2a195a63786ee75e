"""Orders: whose push is next: whoever comes (`free`), each in turn (`round-robin`), or as a file says.

The one idea: an order looks at who has pushed and who is still at work, and names one of those who pushed, or nobody:
then the masters wait. Fixed orders make staleness a matter of the recipe instead of how many cores are free, and a run
reproducible bit by bit.

>>> next_in_turn([1, 2, 3], last=2), next_in_turn([1, 2, 3], last=3), next_in_turn([], last=1)
(3, 1, None)

A run leaves its order in `pushes.csv`, and `--order RUN/pushes.csv` does the same again: epoch, rank and batch of each
push. Limits: after the death of a rank the rest of the epoch has no fixed order any more.
"""

import csv
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from unisono.errors import UserError

ORDERS = ("free", "round-robin")
FIELDS = ("epoch", "rank", "batch", "staleness", "applied")
"""Of pushes.csv; the first three are read again."""
Planned: TypeAlias = Mapping[int, Sequence[tuple[int, int]]]
"""Epoch -> (rank, batch) of each push."""


def next_in_turn(ranks: Collection[int], last: int) -> int | None:
    """The first of `ranks` after `last`, going round."""
    return min(ranks, key=lambda rank: (rank <= last, rank), default=None)


def begins(planned: Sequence[tuple[int, int]], done: Collection[int], pushed: Sequence[tuple[int, int]]) -> bool:
    """Whether an epoch has kept to its order: `done` are its batches up to here, of which this run has `pushed` the
    last (rank, batch).

    >>> order = [(1, 0), (2, 2), (1, 1)]
    >>> begins(order, {0, 2}, [(2, 2)]), begins(order, {0, 2}, [(1, 2)]), begins(order, {0, 1}, [])
    (True, False, False)
    """
    first = planned[: len(done)]
    return {batch for _, batch in first} == set(done) and list(first[len(done) - len(pushed) :]) == list(pushed)


def is_file(order: str) -> bool:
    """Whether --order names a file."""
    return order not in ORDERS


def read(path: Path, epochs: int, pushes: int, ranks: range) -> Planned:
    """The orders of a file; a `UserError` if it does not fit `epochs` epochs of `pushes` batches by workers `ranks`."""
    try:
        with open(path, newline="") as file:
            rows = [[int(row[name]) for name in FIELDS[:3]] for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UserError(
            f"--order {path}: {reason}", hint=f"give {', '.join(ORDERS)}, or the pushes.csv of a run"
        ) from None
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"--order {path} is no table of pushes", hint=f"it needs the columns {', '.join(FIELDS[:3])}, whole numbers"
        ) from None
    found: dict[int, list[tuple[int, int]]] = {epoch: [] for epoch in range(1, epochs + 1)}
    for epoch, rank, batch in rows:
        if rank not in ranks:
            raise UserError(
                f"--order {path} has a push of rank {rank}, but workers are ranks {ranks.start} to {ranks.stop - 1}",
                hint="give the --ranks and --masters that it was made with",
            )
        if epoch in found:
            found[epoch].append((rank, batch))
    for epoch, entries in found.items():
        if sorted(batch for _, batch in entries) != list(range(pushes)):
            raise UserError(
                f"--order {path} has {len(entries)} pushes in epoch {epoch}, but an epoch is {pushes} batches, "
                "once each",
                hint="give the --batch-size and --epochs that it was made with",
            )
    return found
