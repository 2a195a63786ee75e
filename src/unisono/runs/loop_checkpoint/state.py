"""What a snapshot of the user's own loop holds, and whether it fits the loop that is there.

The one idea: arrays lie in the arena and come back as they are; everything else is a few facts, so few that what does
not fit can be named.

    write(folder, steps, arrays_of(sharing, sharing.shared.lasting), facts)
    snapshot = find(folder, sharing, things); restore_arrays(sharing, snapshot)

Limits: that data are the same is seen by their number alone.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unisono.errors import UserError
from unisono.loop.shared_model import ModelSharing
from unisono.loop.shared_optimizer import numbers_of
from unisono.loop.state_codec import pack
from unisono.safe_print import shortened
from unisono.storage.snapshots.facts import array_specs, check_loop
from unisono.storage.snapshots.snapshot import Snapshot, newest
from unisono.strategies.arena.state import PersistentArrays
from unisono.training.fingerprint import differences, fingerprint

KIND = "loop"
_MOST_LETTERS = 2000


def arrays_of(sharing: ModelSharing, lasting: PersistentArrays) -> dict[str, Mapping[str, np.ndarray]]:
    """By group and name, as views."""
    layout = sharing.vectors.layout
    params, *state = (vector[: layout.length] for vector in lasting.vectors)
    return {
        "params": layout.views(params),
        "state": dict(zip(sharing.state_names, state, strict=True)),
        "buffers": {"all": lasting.buffers},
        "tables": {"missed": lasting.missed},
    }


def terms_of(sharing: ModelSharing) -> dict[str, Any]:
    """What must be the same for the same bits, and is not in the data."""
    groups = sharing.optimizer.param_groups
    return {
        "the model": {name: list(shape) for name, shape in sharing.vectors.layout.shapes.items()},
        "shards": sharing.shards,
        "clip": sharing.clip,
        "the optimizer": sharing.kind,
        "its groups": [pack(numbers_of(group), {}) for group in groups],
    }


def find(folder: Path, sharing: ModelSharing, names: list[str]) -> Snapshot | None:
    """The newest whole snapshot; None if there was never one. A `UserError` if none is whole, or it is another loop's.

    names: of the things that are to be kept.
    """
    found = newest(folder)
    if found.snapshot is None and not found.rejected:
        return None
    snapshot = found.require()
    if snapshot.facts.get("kind") != KIND:
        raise UserError(f"{snapshot.path} is not of a loop of one's own", hint="give each run a directory of its own")
    facts = check_loop(snapshot).facts
    now = terms_of(sharing) | {"the things to keep": names}
    other = [name for name in now if facts["terms"].get(name) != now[name]]
    if other:
        then = {name: _told(facts["terms"].get(name)) for name in other}
        told = "\n".join(f"  {name}: {then[name]} then, {now[name]} now" for name in other)
        raise UserError(
            f"{snapshot.path} does not fit this loop:\n{told}",
            hint="give another directory to begin anew, or go on with the program as it was",
        )
    for path, reason in found.rejected:
        warnings.warn(f"the snapshot {path.name} cannot be used: {reason}; the one before it is used", stacklevel=2)
    if changes := differences(facts["fingerprint"], fingerprint()):
        told = "; ".join(changes)
        warnings.warn(f"not all is as it was at the snapshot, so bits may differ: {told}", stacklevel=2)
    return snapshot


def restore_arrays(sharing: ModelSharing, snapshot: Snapshot) -> None:
    """Into the arena; by one rank. A `UserError` if its arrays are not those of this loop."""
    for group, places in arrays_of(sharing, sharing.shared.lasting).items():
        if group == "tables" and group not in snapshot.manifest.files:  # of before steps were counted by parameter
            continue
        saved = snapshot.arrays(group)
        if (found := array_specs(saved)) != (wanted := array_specs(places)):
            raise UserError(
                f"{snapshot.path} does not fit this loop: {group}: {found or 'none'} then, {wanted or 'none'} now",
                hint="give another directory to begin anew, or go on with the program as it was",
            )
        for name, place in places.items():
            place[...] = saved[name]


def _told(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and len(text) <= _MOST_LETTERS else shortened(value, _MOST_LETTERS)
