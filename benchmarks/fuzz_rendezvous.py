"""Inputs for `fuzz.py`: what a stranger may leave in the rendezvous of several machines, and send to its port.

The one idea: this file alone knows how machines find each other; when that changes, it changes here. A rank comes to a
store in which a stranger has written cards first, or to a port that strangers talk to: it joins, or says who is wrong.

    given = make_rendezvous(random, sandbox)
"""

import json
import socket
import sys
import threading
from functools import partial
from random import Random

from fuzz_mutations import ODD_TEXTS, mutate_bytes, mutate_json, odd_value
from fuzz_sandbox import Sandbox
from fuzz_worker import ACCEPTED, EITHER, Input

CARD = {"host": "n2", "address": "10.0.0.2", "id": "0123456789abcdef"}
JOIN_S = 0.3


class Store:
    """What `roll_call` needs of a store, with contents that a stranger chose."""

    def __init__(self, cards: dict[str, bytes]) -> None:
        self.cards = cards

    def set(self, key: str, value: str) -> None:
        self.cards[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.cards[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.cards for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if key not in self.cards and not expected:
            self.cards[key] = desired.encode()
        return self.cards.get(key, expected.encode())


def make_rendezvous(random: Random, sandbox: Sandbox) -> Input:
    """Cards in the store, damaged and not."""
    size = random.choice((2, 3))
    cards, abouts = {}, []
    for rank in random.sample(range(size), random.randint(1, size)):
        text, about = json.dumps(CARD | {"host": f"n{rank}"}).encode(), "as it is"
        kind = random.random()
        if kind < 0.4:
            text, about = mutate_json(random, text)
        elif kind < 0.6:
            text, about = mutate_bytes(random, text)
        elif kind < 0.7:
            text, about = json.dumps(odd_value(random)).encode(), "odd"
        elif kind < 0.8:
            card = CARD | {random.choice(list(CARD)): random.choice(ODD_TEXTS)}
            text, about = json.dumps(card).encode(), str(card)
        cards[f"roll/{rank}"] = text
        abouts.append(f"{rank}: {about}")
    whole = set(cards) == {f"roll/{rank}" for rank in range(1, size)} and all(": as it is" in each for each in abouts)
    return Input((), ACCEPTED if whole else EITHER, "; ".join(abouts)[:120], call=partial(_join, cards, size))


def _join(cards: dict[str, bytes], size: int) -> None:
    """In the child: rank 0 comes."""
    from unisono.comm.roll_call import Join, call, names_of

    store, join = Store(cards), Join(main="127.0.0.1", timeout_s=JOIN_S)
    call(store, 0, size, join)
    names_of(store, size, join)


def make_port(random: Random, sandbox: Sandbox) -> Input:
    """Bytes for the port at which a machine waits for another, which does not come: it says so, whatever came."""
    sent = [random.randbytes(random.choice((0, 1, 7, 300, 70_000))) for _ in range(random.randint(1, 4))]
    sent = [mutate_bytes(random, _HELLO)[0] if random.random() < 0.5 else data for data in sent]
    return Input((), frozenset({2}), " | ".join(repr(data[:20]) for data in sent), call=partial(_listen, sent))


_HELLO = b"\x00" + (0x3C85F7CE).to_bytes(4, "little") + b"\x01" + b"\x08\x00\x00\x00\x00\x00\x00\x00init/abc"
"""How a client of the store that torch brings begins."""


def _listen(sent: list[bytes]) -> None:
    """In the child: a machine of two, to whose port strangers talk."""
    from fuzz_runs import TINY

    from unisono.cli.main import main

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threading.Thread(target=_talk, args=(port, sent), daemon=True).start()
    words = [
        "--num-nodes",
        "2",
        "--node-id",
        "0",
        "--main-address",
        "127.0.0.1",
        "--main-port",
        str(port),
        "--join-timeout",
        "2",
    ]
    sys.argv += ["train", *TINY, "--epochs", "1", "--ranks", "1", "--out", "run", *words]
    main()


def _talk(port: int, sent: list[bytes]) -> None:
    lines = []
    for data in sent:
        for _ in range(200):
            try:
                line = socket.create_connection(("127.0.0.1", port), 1)
                break
            except OSError:
                threading.Event().wait(0.02)
        else:
            return
        lines.append(line)
        try:
            line.sendall(data)
        except OSError:
            continue
