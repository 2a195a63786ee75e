"""Rendezvous: which ranks have arrived, which are missing, and their addresses, before any rank connects to another.

The one idea: each rank writes a card into a store that all reach, and reads those of the others; who is missing when
time is up is named to everybody who came, instead of a silence of half an hour.

    addresses = exchange_addresses(store, rank, size, RendezvousOptions(main="10.0.0.1"))

Only machines that know the secret reach our own store; a card is checked all the same, for torchrun's store is open.

Limits: whoever serves the store must come; without it nobody knows anything.
"""

import json
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from unisono.comm.base import DEFAULT_JOIN_S
from unisono.comm.topology.addresses import address_of, is_loopback, own_address
from unisono.comm.topology.authentication import Secret
from unisono.errors import CommTimeout, UserError
from unisono.parsing import parse_json

_LOOK_S, _MOST_LOOK_S = 0.05, 0.5
_CAME = "roll/came"
"""Its value has the numbers of all who came: one request, of however many ranks."""
_CARD_BYTES, _NAME_LENGTH = 1 << 12, 255


class RendezvousStore(Protocol):
    """The part of a torch store that is needed."""

    def set(self, key: str, value: str, /) -> None: ...

    def get(self, key: str, /) -> bytes: ...

    def multi_get(self, keys: list[str], /) -> list[bytes]: ...

    def check(self, keys: list[str], /) -> bool: ...

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...

    def delete_key(self, key: str, /) -> bool: ...


@final
@dataclass(frozen=True)
class RendezvousOptions:
    """How ranks find each other."""

    main: str = ""
    """The host whose address all were given."""
    interface: str = ""
    """The network interface to use; the one on the way to `main` if empty."""
    timeout_s: float = DEFAULT_JOIN_S
    noun: str = "rank"
    """What those are who come."""
    once: bool = False
    """Whether nobody comes a second time, so that two of one number can be told from two worlds of one process."""
    at: str = ""
    """'host:port' of a store that neither rank serves, but whoever started them: torchrun's agent."""
    secret: Secret | None = None
    """What every rank proves to rank 0, and rank 0 to it; needed where rank 0 serves the store."""


@final
@dataclass(frozen=True)
class RankAddress:
    """What a rank says of itself."""

    host: str
    address: str

    @classmethod
    def read(cls, text: bytes, who: str) -> "RankAddress":
        """A `UserError` if it is none that a rank could have written. who: whose it should be."""
        try:
            found = parse_json(text, most_bytes=_CARD_BYTES, strict=True)
            host, address = found["host"], found["address"]
            if not (isinstance(host, str) and host.isprintable() and len(host) <= _NAME_LENGTH):
                raise ValueError("no host name")
            if not (isinstance(address, str) and address.isprintable() and len(address) <= _NAME_LENGTH):
                raise ValueError("no address")
            is_loopback(address)  # a ValueError if it is no IP address
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"the card of {who} in the rendezvous is not valid: {error}",
                hint="does another program, or another version of unisono, use the same address and port?",
            ) from None
        return cls(host, address)


@final
class RanksMissing(CommTimeout):
    """Somebody is missing when the time to join is up."""

    exit_code = 2


def exchange_addresses(
    store: RendezvousStore, rank: int, size: int, join: RendezvousOptions, refusals: Sequence[str] = ()
) -> str:
    """This rank's address for the others; returns when all have come. refusals: grows; said if somebody is missing."""
    mine = address_of(join.interface) if join.interface else own_address(join.main) if join.main else "127.0.0.1"
    cards = _gather(store, rank, size, join, {"host": socket.gethostname(), "address": mine}, refusals)
    if not is_loopback(mine) or join.interface:
        return mine
    # This rank is where the main address is: the others tell from where they reach it.
    away = next((card.address for card in cards if not is_loopback(card.address)), "")
    return own_address(away) if away else mine


def rank_names(store: RendezvousStore, size: int, join: RendezvousOptions) -> list[str]:
    """What all who have come are called when something is said of them: node 1 (n2, 10.0.0.2)."""
    cards = _cards(store, range(size), join)
    places = [join.main if is_loopback(card.address) else card.address for card in cards]
    return [
        f"{join.noun} {other} ({', '.join(filter(None, (card.host, place)))})"
        for other, (card, place) in enumerate(zip(cards, places, strict=True))
    ]


def unconnected(names: Sequence[str], rank: int, join: RendezvousOptions, reason: str) -> RanksMissing:
    """All have come, and this rank could not connect to all of them."""
    others = [name for other, name in enumerate(names) if other != rank]
    return RanksMissing(
        f"{names[rank]}: all {len(names)} have come, but within {join.timeout_s:g} s there was no connection to "
        f"{' or '.join(others)}: {reason}",
        hint="ports above 1023 must be open between the machines, in both directions, not the main port alone; does "
        "another --interface lead there? unisono doctor --nodes shows who reaches whom",
    )


def _gather(
    store: RendezvousStore, rank: int, size: int, join: RendezvousOptions, card: dict[str, str], refusals: Sequence[str]
) -> list[RankAddress]:
    deadline = time.monotonic() + join.timeout_s
    missing, look_s = list(range(size)), _LOOK_S
    try:
        _lay(store, rank, size, join, card)
        store.append(_CAME, f"{rank} ")  # type: ignore[attr-defined]  # torch's stubs leave it out
        while missing := _missing(store, size):
            if time.monotonic() > deadline:
                if missing := _without_card(store, size):
                    raise _not_all(store, rank, size, missing, join, refusals)
                break
            time.sleep(look_s)
            look_s = min(1.5 * look_s, _MOST_LOOK_S)
        return _cards(store, range(size), join)
    except RuntimeError as error:
        # Whoever serves the store gave up a moment ago: what it last said is all there is to say.
        raise RanksMissing(
            f"{join.noun} {rank}: whoever serves the store at {join.main or 'the main address'} is gone; "
            f"until then {f'{_listed(join.noun, missing)} had not' if missing else 'all had'} come",
            missing=missing,
            hint="see what it says itself",
        ) from error


def _missing(store: RendezvousStore, size: int) -> list[int]:
    came = set(store.get(_CAME).split())
    missing = [rank for rank in range(size) if b"%d" % rank not in came]
    if missing or store.check([f"roll/{rank}" for rank in range(size)]):
        return missing
    return _without_card(store, size)  # torchrun's store is open: a stranger may have written numbers


def _without_card(store: RendezvousStore, size: int) -> list[int]:
    return [rank for rank in range(size) if not store.check([f"roll/{rank}"])]


def _lay(store: RendezvousStore, rank: int, size: int, join: RendezvousOptions, card: dict[str, str]) -> None:
    """Puts a card down where none is: of two with one number, either is told where the other is."""
    own = json.dumps(card | {"id": secrets.token_hex(8)})
    found = store.compare_set(f"roll/{rank}", "", own)
    if found != own.encode():
        there = RankAddress.read(found, f"{join.noun} {rank}")
        raise UserError(
            f"{join.noun} {rank} is here already, on {there.host}: this one is on {card['host']}",
            hint=f"give each {join.noun} a number of its own, from 0 to {size - 1}",
        )


def _not_all(
    store: RendezvousStore,
    rank: int,
    size: int,
    missing: Sequence[int],
    join: RendezvousOptions,
    refusals: Sequence[str],
) -> RanksMissing:
    came = [other for other in range(size) if other not in missing]
    here = ", ".join(f"{other} on {card.host}" for other, card in zip(came, _cards(store, came, join), strict=True))
    return RanksMissing(
        f"{join.noun} {rank}: after {join.timeout_s:g} s {_listed(join.noun, missing)} of {size} had not come; "
        f"here: {join.noun} {here}{''.join(f'; {text}' for text in refusals)}",
        missing=missing,
        hint="give it the secret of this machine, as it was told there"
        if refusals
        else "was it started, with the same main address and port, and can it reach them? --join-timeout waits longer",
    )


def _cards(store: RendezvousStore, ranks: Iterable[int], join: RendezvousOptions) -> list[RankAddress]:
    several = list(ranks)
    found = store.multi_get([f"roll/{rank}" for rank in several])
    return [RankAddress.read(card, f"{join.noun} {rank}") for rank, card in zip(several, found, strict=True)]


def _listed(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
