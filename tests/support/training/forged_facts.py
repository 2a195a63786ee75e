"""Facts of a snapshot with one of them changed to something that it cannot be, and the seal that vouches for them.

for name, facts in mutated(manifest.facts, depth=2): reseal(path, manifest, facts)
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from unisono.storage.snapshots import manifest as manifests
from unisono.storage.snapshots.manifest import Manifest

NESTED: list[Any] = []
for _ in range(90):
    NESTED = [NESTED]
WRONG = {
    "none": None, "text": "x\x1b[2J", "negative": -1, "huge": 10**30, "fraction": 0.5, "true": True, "list": [[]],
    "table": {"a": 1}, "nested": NESTED, "long": "y" * 99_999,
}  # fmt: skip
"""What a fact is replaced by; besides, each is left out."""


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every entry of nested tables and lists; of long lists the first and the last."""
    if path:
        yield path
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = sorted({0, len(value) - 1}) if value else []
    for key in keys:
        yield from places_in(value[key], (*path, key))


def mutated(facts: dict[str, Any], depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in places_in(facts):
        if len(path) > depth:
            continue
        names = list(WRONG) if len(path) == 1 else ["none", "negative", "list"]  # fewer of those inside others
        for name, wrong in [*((name, WRONG[name]) for name in names), ("left out", None)]:
            changed = copy.deepcopy(facts)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            if name == "left out":
                del holder[path[-1]]
            else:
                holder[path[-1]] = wrong
            if changed != facts:
                yield f"{'.'.join(map(str, path))} {name}", changed


def reseal(snapshot: Path, manifest: Manifest, facts: dict[str, Any]) -> None:
    (snapshot / manifests.FILE).write_bytes(manifests.sealed(replace(manifest, facts=facts)))
