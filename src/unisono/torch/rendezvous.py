"""connect: from torch's store to the memory that the ranks of a process group share, and to other machines.

The one idea: each rank writes who it is into the store that torch has anyway, and reads the others: which ranks are on
one machine, and which process each of them is. The first rank of a machine makes its memory, the others fetch it over a
socket that the kernel authenticates (`arena/memory/fd_passing.py`).

A launcher that starts ranks again may give them the store of the last attempt, to which some came and others did not.
So rank 0 names each attempt anew, and a rank goes on with one only when rank 0 lists the very card that it has given.

    memory, links, gloo = connect(store, rank, size, timeout_s=60)

Limits: between machines there is gloo, whose traffic nothing protects (docs/security.md).
"""

import json
import os
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # public all the same

from unisono.arena.memory.segment import Segment
from unisono.comm.gloo.process_group import connect as connect_gloo
from unisono.comm.shm.memory import ShmPlan
from unisono.comm.topology.addresses import is_loopback, own_address
from unisono.comm.topology.shared_machine import fetch_segment, make_segment, node_key
from unisono.errors import CommTimeout
from unisono.parsing import parse_json
from unisono.resources import usable_cores
from unisono.torch.machine_links import MachineLinks
from unisono.torch.machine_memory import MachineMemory

_CARD_BYTES = 1 << 12
_LOOK_S = 0.002, 0.02
"""How long a rank waits before it looks at the store again, at first and at most."""


class Connected(NamedTuple):
    """What a rank has of a group. messages: gloo's group of all ranks, for messages between machines."""

    memory: MachineMemory
    links: MachineLinks | None
    messages: Any


class _Card(NamedTuple):
    machine: str
    pid_space: int
    pid: int
    token: str
    """Of this one time that the rank joins."""


def connect(store: Store, rank: int, size: int, timeout_s: float, main: str = "") -> Connected:
    """Called by every rank of the group. main: the host that all were told, where there are several machines."""
    deadline = time.monotonic() + timeout_s
    own = _Card(node_key().hex(), os.stat("/proc/self/ns/pid").st_ino, os.getpid(), secrets.token_hex(8))
    attempt, cards = (_gather if rank == 0 else _report)(store, rank, size, own, deadline)
    store = PrefixStore(attempt, store)
    members = [other for other in range(size) if cards[other].machine == own.machine]
    segment = _share(store, members, rank, size, deadline)
    pids = {other: cards[other].pid for other in members if other != rank and cards[other].pid_space == own.pid_space}
    memory = MachineMemory(segment, members, rank, size, pids, crowded=len(members) > usable_cores())
    machines = list(dict.fromkeys(card.machine for card in cards))
    if len(machines) == 1:
        return Connected(memory, None, None)
    places = [tuple(other for other in range(size) if cards[other].machine == name) for name in machines]
    at = _address(main)
    remaining_s = max(1.0, left_s(deadline))
    everyone = connect_gloo(PrefixStore("ranks", store), rank, size, at, remaining_s)
    first = None
    if members[0] == rank:
        number = machines.index(own.machine)
        first = connect_gloo(PrefixStore("machines", store), number, len(machines), at, remaining_s)
    return Connected(memory, MachineLinks(places, rank, first, timeout_s), everyone)


def _address(main: str) -> str:
    """The address that this machine's gloo listens on; empty: as gloo itself finds it."""
    if not main:
        return ""
    found = own_address(main)
    return "" if is_loopback(found) else found


def _gather(store: Store, rank: int, size: int, own: _Card, deadline: float) -> tuple[str, list[_Card]]:
    """What rank 0 does: its token names the attempt; when all cards of this attempt are there, it passes them on."""
    attempt = PrefixStore(own.token, store)
    attempt.set(_card(0), json.dumps(own))
    store.set("attempt", own.token)
    keys = [_card(other) for other in range(size)]
    try:
        attempt.wait(keys, timedelta(seconds=left_s(deadline)))
    except RuntimeError:
        raise _absent([other for other, key in enumerate(keys) if not attempt.check([key])], size) from None
    cards = [_Card(*parse_json(attempt.get(key), most_bytes=_CARD_BYTES)) for key in keys]
    attempt.set("cards", json.dumps(cards))
    return own.token, cards


def _report(store: Store, rank: int, size: int, own: _Card, deadline: float) -> tuple[str, list[_Card]]:
    """What the others do: each gives its card to the attempt that it finds, until one has taken it."""
    name, nap_s = "", _LOOK_S[0]
    while True:
        if store.check(["attempt"]) and (found := store.get("attempt").decode()) != name:
            name, attempt = found, PrefixStore(found, store)
            attempt.set(_card(rank), json.dumps(own))
        if name and attempt.check(["cards"]):
            cards = [_Card(*row) for row in parse_json(attempt.get("cards"), most_bytes=_CARD_BYTES * size)]
            if len(cards) == size and cards[rank] == own:
                return name, cards
        if time.monotonic() > deadline:
            new = name and not attempt.check(["cards"])
            missing = [other for other in range(size) if not attempt.check([_card(other)])] if new else []
            raise _absent(missing or [0], size)
        time.sleep(nap_s)
        nap_s = min(nap_s * 1.2, _LOOK_S[1])


def _card(rank: int) -> str:
    return f"card/{rank}"


def _absent(missing: Sequence[int], size: int) -> CommTimeout:
    return CommTimeout(
        f"rank {', '.join(map(str, missing)) or '?'} of {size} did not join the process group in time",
        missing=missing,
        hint="was it started, and does it create the same groups in the same order? timeout= waits longer",
    )


def _share(store: Store, members: Sequence[int], rank: int, size: int, deadline: float) -> Segment:
    maker, key = members[0], f"memory/{members[0]}"
    if rank == maker:
        return make_segment(
            ShmPlan(size).nbytes, members[1:], lambda name: store.set(key, name or "-"), left_s(deadline)
        )
    try:
        store.wait([key], timedelta(seconds=left_s(deadline)))
    except RuntimeError:
        raise CommTimeout(
            f"rank {maker} did not make the shared memory of this machine in time",
            missing=[maker],
            hint="its own message says why",
        ) from None
    return fetch_segment(store.get(key).decode().strip("-"), maker, left_s(deadline))


def left_s(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
