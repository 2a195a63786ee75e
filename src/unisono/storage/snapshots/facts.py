"""What a snapshot says of its run, or of the user's own loop: which facts, of which type, in which range.

The one idea: a right seal says that nothing was written by accident, not that what is written is true. So every fact
that is used when a run goes on is looked at once, before anything is made of it, and one that cannot be true is named.

    check_run(snapshot); snapshot.facts["epoch"]            # a whole number from 1
    check_loop(snapshot); snapshot.facts["loops"]           # whole numbers from 0

Limits: facts that are wrong but could be true go unseen here; data, code and recipe are compared elsewhere.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from unisono.errors import UserError
from unisono.recipe import OPTIONS
from unisono.recipe.reading import from_values
from unisono.safe_print import shortened
from unisono.storage.snapshots.snapshot import Snapshot

MOST = 2**53
"""Counts above it are not believed: arithmetic with them would not be exact."""
EVALUATION = "evaluation_data"
"""The hash of validation and test data, on which early stopping depends."""
_MOST_PATH, _MOST_FINGERPRINT = 4096, 1 << 16


@final
class Fact(NamedTuple):
    """What is expected, in words, and whether a value is that. optional: older snapshots lack it."""

    expected: str
    holds: Callable[[Any], bool]
    optional: bool = False


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0, and not an absurd one."""
    return type(value) is int and 0 <= value < MOST


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_PATH and value.isprintable()


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_PATH and "\0" not in value


def _is_fingerprint(value: Any) -> bool:
    return isinstance(value, dict) and len(json.dumps(value)) <= _MOST_FINGERPRINT


def _is_place(value: Any) -> bool:
    """Of a batch: numbers that tell its data apart, the epoch and the step; nothing before the first one."""
    whole = isinstance(value, list) and all(type(number) is int and abs(number) < 2**64 for number in value)
    return whole and (not value or (len(value) >= 2 and _are_counts(value[-2:])))


def _are_epochs(value: Any) -> bool:
    names = {"epoch", "over", "entered", "loops", "begun"}
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and entry.keys() == names
        and type(entry["over"]) is bool
        and all(is_count(entry[name]) for name in names - {"over"})
        for entry in value
    )


_COUNT = Fact("a whole number from 0", is_count)
_TABLE = Fact("a table", lambda value: isinstance(value, dict))
_FINGERPRINT = Fact(f"a table of at most {_MOST_FINGERPRINT:,} letters", _is_fingerprint)
_TEXT = Fact("a text that can be printed", _is_text)
_PLACE = Fact("a list of whole numbers, the epoch and the step at its end", _is_place)

RUN: Mapping[str, Fact] = {
    "epoch": Fact("a whole number from 1", lambda value: is_count(value) and value > 0),
    "step": _COUNT,
    "recipe": _TABLE,
    "directory": Fact("the path of a directory", _is_path, optional=True),
    "code": _TEXT._replace(optional=True),
    "data": _TEXT,
    EVALUATION: _TEXT._replace(optional=True),
    "fingerprint": _FINGERPRINT,
}
LOOP: Mapping[str, Fact] = {
    "batches": _COUNT,
    "steps": _COUNT,
    "loops": Fact("a list of whole numbers from 0", _are_counts),
    "first": _COUNT._replace(optional=True),
    "last": _PLACE,
    "next": _PLACE._replace(optional=True),
    "epochs": Fact("a list of tables of whole numbers from 0", _are_epochs, optional=True),
    "terms": _TABLE,
    "groups": Fact("a list", lambda value: isinstance(value, list)),
    "things": _TABLE,
    "generators": _TABLE,
    "fingerprint": _FINGERPRINT,
}
_RECIPE = ("ranks", "shards", "engine")
"""Options without which a run cannot go on."""


def check_run(snapshot: Snapshot) -> Snapshot:
    """The snapshot; a `UserError` that names what cannot be true of a run."""
    _check(snapshot, RUN)
    saved = snapshot.facts["recipe"]
    if lacking := [name for name in _RECIPE if name not in saved]:
        raise _wrong(snapshot, f"the recipe lacks {', '.join(lacking)}")
    # Options of other versions are passed over, as they are when recipes are compared.
    known = {name: saved[name] for name in OPTIONS if name in saved}
    for name, value in known.items():
        if len(str(value)) > _MOST_PATH:
            raise _wrong(snapshot, f"{name} in the recipe is {shortened(value)}")
    from_values(known, f"the recipe of {snapshot.path}")
    return snapshot


def check_loop(snapshot: Snapshot) -> Snapshot:
    """The snapshot; a `UserError` that names what cannot be true of a loop of the user's own."""
    _check(snapshot, LOOP)
    facts = snapshot.facts
    if facts["steps"] != snapshot.position:
        raise _wrong(snapshot, f"steps is {facts['steps']}, but its position is {snapshot.position}")
    if sum(facts["loops"]) != facts["batches"]:
        raise _wrong(snapshot, f"batches is {facts['batches']}, but its loops add up to {sum(facts['loops'])}")
    if facts["batches"] and not facts["last"]:
        raise _wrong(snapshot, f"batches is {facts['batches']}, but none is the last")
    epochs = facts.get("epochs", [])
    if any(entry["loops"] > len(facts["loops"]) or entry["entered"] > len(epochs) for entry in epochs):
        raise _wrong(snapshot, "epochs count loops that are not there")
    return snapshot


def array_specs(arrays: Mapping[str, np.ndarray], by_row: Sequence[str] = ()) -> dict[str, str]:
    """Type and shape of each array, to be compared and shown; those named in `by_row` may have any number of rows."""
    return {name: f"{array.dtype} {array.shape[name in by_row :]}" for name, array in sorted(arrays.items())}


def _check(snapshot: Snapshot, expected: Mapping[str, Fact]) -> None:
    for name, fact in expected.items():
        if name not in snapshot.facts:
            if fact.optional:
                continue
            raise _wrong(snapshot, f"{name} is missing; expected is {fact.expected}")
        if not fact.holds(snapshot.facts[name]):
            raise _wrong(snapshot, f"{name} is {shortened(snapshot.facts[name])}; expected is {fact.expected}")


def _wrong(snapshot: Snapshot, what: str) -> UserError:
    return UserError(
        f"{snapshot.path}: its manifest cannot be true: {what}",
        hint="it is not as unisono wrote it, though its seal is right: use another snapshot, or start again",
    )
