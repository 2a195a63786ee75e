"""Recordings: the pushes.csv of a run, read back as an order; refused where it would not repeat that run bit by bit.

The one idea: every line says enough to tell. `recipe` is a mark of the options that decide the bits; `greeted` is how
many pushes of the epoch there were when the worker last asked for parameters without pushing: 0, unless it was replaced
in the middle of the epoch, or the epoch was halted and resumed. That is not repeated, so such an epoch is refused.

    planned = read(Path("runs/mine/pushes.csv"), recipe, pushes=91, rules=terms.rules)

A table of one's own with the columns epoch, rank and batch alone is an order that nobody has recorded: nothing is
compared then.

Limits: data of the same name are taken for the same data, and so is a model's file.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, final

from unisono.errors import UserError
from unisono.files import open_file
from unisono.recipe import OPTIONS, Recipe, flag
from unisono.recipe.reading import load
from unisono.strategies.asynchronous.sequencer import ORDERS, PUSH, Planned, Sequencer, SequencerRules

OWN = ("epoch", "rank", "batch")
FIELDS = (*OWN, "staleness", "applied", "greeted", "recipe")
"""Of pushes.csv; the first three make an order, the others tell whether it repeats the run."""
FREE = {
    "order", "deal", "data_dir", "out", "resume", "allow_change", "respawn", "max_restarts", "stall_timeout", "keep",
    "snapshot_every", "log_ranks", "tensorboard", "transport", "slow", "watts_per_core", "device", "shards",
    "allreduce", "wire", "eval_every", "target_accuracy", "patience",
}  # fmt: skip
"""Options that do not change the bits of a run whose order is given."""
_MOST_DIGITS = 20
ALONE = f"to take its order alone, whatever comes of it, keep only its columns {', '.join(OWN)}"


@final
class Row(NamedTuple):
    """A push, as a line of the file tells it."""

    line: int
    epoch: int
    rank: int
    batch: int
    staleness: int = 0
    applied: int = 1
    greeted: int = 0
    recipe: str = ""


def deciding(recipe: Recipe) -> dict[str, Any]:
    """The options that decide the bits, where they are not the defaults."""
    free = FREE | ({"epochs"} if recipe.learning.schedule == "constant" else set())
    found = {field.name: (recipe.option(field.name), field.default) for field in OPTIONS.values()}
    return {name: given for name, (given, usual) in found.items() if given != usual and name not in free}


def mark_of(recipe: Recipe) -> str:
    """Eight hexadecimal digits, equal for recipes that are alike in all that decides the bits."""
    return hashlib.sha256(json.dumps(deciding(recipe), sort_keys=True).encode()).hexdigest()[:8]


def read(path: Path, recipe: Recipe, pushes: int, rules: Callable[[int], SequencerRules]) -> Planned:
    """The order of a file, for every epoch of `pushes` batches; a `UserError` if it is damaged or does not fit.

    rules(epoch): what the sequencer goes by.
    """
    rows, recorded = _parsed(path)
    rows = [row for row in rows if row.epoch <= recipe.learning.epochs]
    if recorded:
        _check_recipe(path, recipe, rows)
    # An epoch without a line is refused: one more than there can be shows it, whatever number is asked for.
    found: dict[int, list[Row]] = {epoch: [] for epoch in range(1, min(recipe.learning.epochs, len(rows) + 1) + 1)}
    seen: dict[tuple[int, int], int] = {}
    workers = range(recipe.strategy.masters, recipe.ranks.count)
    for row in rows:
        _check_row(path, row, workers, pushes)
        if (first := seen.setdefault((row.epoch, row.batch), row.line)) != row.line:
            raise _damaged(path, row.line, f"batch {row.batch} of epoch {row.epoch} is there already, in line {first}")
        found.setdefault(row.epoch, []).append(row)
    last = max((row.epoch for row in rows), default=0)
    for epoch, entries in found.items():
        _check_whole(path, recipe, epoch, last, (len(entries), pushes), recorded=recorded)
        if recorded:
            _check_repeats(path, entries, Sequencer(rules(epoch)))
    return {epoch: [(row.rank, row.batch) for row in entries] for epoch, entries in found.items()}


def _parsed(path: Path) -> tuple[list[Row], bool]:
    """The lines, and whether a run has recorded them."""
    try:
        with open_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            try:
                head = next(reader, [])
                lacking = _lacking(path, head)
                places = [head.index(name) for name in (OWN if lacking else FIELDS)]
                return [_row(path, reader.line_num, line, head, places) for line in reader if line], not lacking
            except csv.Error as error:
                raise _damaged(path, reader.line_num, str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UserError(
            f"--order {path}: {reason}", hint=f"give {', '.join(ORDERS)}, or the pushes.csv of a run"
        ) from None


def _lacking(path: Path, head: Sequence[str]) -> list[str]:
    """Columns of a recording that are not there; none or all of them but those of an order."""
    missing = [name for name in OWN if name not in head]
    if missing:
        raise _damaged(path, 1, f"no column {', '.join(missing)}" if head else "nothing is there")
    lacking = [name for name in FIELDS if name not in head]
    if lacking and len(lacking) < len(FIELDS) - len(OWN):
        raise _damaged(path, 1, f"a recording without the column {', '.join(lacking)}", hint=ALONE)
    return lacking


def _row(path: Path, number: int, line: Sequence[str], head: Sequence[str], places: Sequence[int]) -> Row:
    if len(line) != len(head):
        raise _damaged(path, number, f"{len(line)} fields, but line 1 names {len(head)}")
    values: list[Any] = [line[place] for place in places]
    for index, name in enumerate(FIELDS[: len(values)]):
        if name != "recipe":
            try:
                values[index] = _whole(values[index])
            except ValueError:
                told = ascii(values[index][:_MOST_DIGITS])
                raise _damaged(path, number, f"{name} is {told}, not a whole number") from None
    return Row(number, *values)


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("too long")
    return int(text)


def _check_row(path: Path, row: Row, workers: range, pushes: int) -> None:
    if row.rank not in workers:
        raise _damaged(
            path, row.line, f"a push of rank {row.rank}, but workers are ranks {workers.start} to {workers.stop - 1}",
            hint="give the --ranks and --masters that it was made with",
        )  # fmt: skip
    if row.epoch < 1 or not 0 <= row.batch < pushes:
        raise _damaged(
            path, row.line, f"batch {row.batch} of epoch {row.epoch}, but an epoch is {pushes} batches from 0 on",
            hint="give the --batch-size that it was made with",
        )  # fmt: skip


def _check_recipe(path: Path, recipe: Recipe, rows: Iterable[Row]) -> None:
    mark = mark_of(recipe)
    other = next((row for row in rows if row.recipe != mark), None)
    if other is None:
        return
    beside = path.parent / "recipe.toml"
    saved = None
    with suppress(UserError):
        saved = load(str(beside), {}) if beside.is_file() else None
    then = mark_of(saved) if saved is not None else ""
    if saved is not None and then == other.recipe:
        names = sorted(deciding(saved).keys() | deciding(recipe).keys())
        pairs = [(name, saved.option(name), recipe.option(name)) for name in names]
        told = "".join(f"\n  {flag(name)}: {old!r} then, {now!r} now" for name, old, now in pairs if old != now)
    elif then == mark:
        told = f"\n  epoch {other.epoch} is of before the run was resumed with --allow-change"
    else:
        told = f"\n  what it was is not known: {beside} is not its recipe"
    raise UserError(
        f"--order {path}, line {other.line}: recorded with another recipe, so it would not be repeated:{told}",
        hint=f"give the options that it was made with; {ALONE}",
    )


def _check_whole(path: Path, recipe: Recipe, epoch: int, last: int, counts: tuple[int, int], *, recorded: bool) -> None:
    found, pushes = counts
    if found == pushes:
        return
    what = f"--order {path} has {found} pushes in epoch {epoch}, but an epoch is {pushes} batches, once each"
    hint = f"give the --batch-size and --epochs that it was made with{f'; epochs up to {last} are there' * (last > 0)}"
    if recorded and epoch > last:
        what = f"--order {path} ends with epoch {last}, and {recipe.learning.epochs} are asked for"
        hint = (
            f"give --epochs {last}"
            if recipe.learning.schedule == "constant"
            else f"--schedule {recipe.learning.schedule} needs all"
        )
    elif recorded:
        what += ": the run was halted in it and resumed, and what was pushed before is not recorded"
        hint = f"give --epochs {epoch - 1}, or a run that was not halted" if epoch > 1 else ALONE
    raise UserError(what, hint=hint)


def _check_repeats(path: Path, rows: Sequence[Row], sequencer: Sequencer) -> None:
    """Of a whole epoch: that nothing happened in it beside its pushes."""
    for row in rows:
        if row.greeted:
            before = f"give --epochs {row.epoch - 1}, or" if row.epoch > 1 else "give"
            raise UserError(
                f"--order {path}, line {row.line}: rank {row.rank} had got its parameters in the middle of epoch "
                f"{row.epoch}, after {row.greeted} pushes (it was replaced, or given a dead rank's batches), and that "
                "is not repeated",
                hint=f"{before} the order of a run in which no worker died; {ALONE}",
            )
    for rank in sorted({row.rank for row in rows}):
        sequencer.greet(rank, 0)
    for row in rows:
        entry = sequencer.push(row.rank, row.batch, 0)
        if (entry.staleness, entry.kind == PUSH) != (row.staleness, bool(row.applied)):
            raise _damaged(
                path, row.line, f"staleness {row.staleness}, applied {row.applied}, but in this order it is "
                f"{entry.staleness}, {int(entry.kind == PUSH)}: lines were changed or moved",
            )  # fmt: skip


def _damaged(path: Path, line: int, what: str, hint: str = "") -> UserError:
    wanted = f"expected is the pushes.csv of a run, or lines of whole numbers below a head {','.join(OWN)}"
    return UserError(f"--order {path}, line {line}: {what}", hint=hint or wanted)
