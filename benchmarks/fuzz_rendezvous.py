"""Inputs for `fuzz.py`: what a stranger may leave in the rendezvous of several machines, and send to its port.

The one idea: this file alone knows how machines find each other; when that changes, it changes here. A rank comes to a
store in which a stranger has written cards, to a port that strangers talk to, or to a stranger who says that he is the
store: it joins, or says what is wrong.

    given = make_rendezvous(random, sandbox)
"""

import json
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from random import Random

from fuzz_mutations import ODD_TEXTS, mutate_bytes, mutate_json, odd_value
from fuzz_runs import TINY
from fuzz_sandbox import Sandbox
from fuzz_worker import ACCEPTED, EITHER, REFUSED, Input

CARD = {"host": "n2", "address": "10.0.0.2", "id": "0123456789abcdef"}
JOIN_S = 0.3
ANSWER_S = 20.0


class Store:
    """What `roll_call` needs of a store, with contents that a stranger chose."""

    def __init__(self, cards: dict[str, bytes]) -> None:
        self.cards = cards

    def set(self, key: str, value: str) -> None:
        self.cards[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.cards[key]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.cards[key] for key in keys]

    def append(self, key: str, value: str) -> None:
        self.cards[key] = self.cards.get(key, b"") + value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.cards for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if key not in self.cards and not expected:
            self.cards[key] = desired.encode()
        return self.cards.get(key, expected.encode())

    def delete_key(self, key: str) -> bool:
        return self.cards.pop(key, None) is not None


def make_rendezvous(random: Random, sandbox: Sandbox) -> Input:
    """Cards; or, where unisono has a store of its own, strangers who talk to it, or who say that they are it."""
    if find_spec("unisono.comm.topology.store_server") is None or random.random() < 0.5:
        return _make_cards(random)
    sent = [_message(random) for _ in range(random.randint(1, 4))]
    about = " | ".join(repr(data[:20]) for data in sent)
    if random.random() < 0.5:
        fields = [[_field(random) for _ in range(random.randrange(4))] for _ in range(random.randrange(4))]
        return Input((), ACCEPTED, about, call=partial(_visit_store, sent, fields))
    return Input((), ACCEPTED, about, call=partial(_be_the_store, sent))


def _make_cards(random: Random) -> Input:
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
    if random.random() < 0.5:
        cards["roll/came"] = random.choice((b"0 1 2 ", b"1 1 1 ", b"-1 \xff 9", b"9" * 5000, random.randbytes(70)))
    return Input((), ACCEPTED if whole else EITHER, "; ".join(abouts)[:120], call=partial(_join, cards, size))


def _join(cards: dict[str, bytes], size: int) -> None:
    """In the child: rank 0 comes."""
    from unisono.comm.topology.rendezvous import RendezvousOptions, exchange_addresses, rank_names

    store, join = Store(cards), RendezvousOptions(main="127.0.0.1", timeout_s=JOIN_S)
    exchange_addresses(store, 0, size, join)
    rank_names(store, size, join)


def _message(random: Random) -> bytes:
    """What begins like a handshake of ours or of torch's store, and goes on otherwise; or anything."""
    begun = random.choice((b"unisono\n\0\1", b"unisono\n\0\2", b"\x00\xce\xf7\x85<\x01", b"GET / HTTP/1.1\r\n\r\n"))
    whole = begun + random.randbytes(random.choice((0, 1, 32, 33, 42, 128, 138, 300, 70_000)))
    return mutate_bytes(random, whole)[0] if random.random() < 0.5 else whole


def _field(random: Random) -> bytes:
    """Of a request by somebody who knows the secret."""
    words = (
        b"set",
        b"get",
        b"add",
        b"compare_set",
        b"check",
        b"wait",
        b"delete",
        b"delete_under",
        b"count",
        b"append",
        b"",
        b"x",
    )
    return random.choice((*words, b"-1", b"9" * 5000, b"\xff", bytes(2000), b"100", random.randbytes(7)))


def _visit_store(sent: list[bytes], requests: list[list[bytes]]) -> None:
    """In the child: strangers talk to the store, then somebody with the secret asks odd things, then right ones."""
    from unisono.comm.topology.authentication import Secret
    from unisono.comm.topology.store_client import StoreClient, StoreError
    from unisono.comm.topology.store_server import StoreServer

    secret = Secret(b"0123456789abcdef" * 2, "the fuzzer")
    server = StoreServer(["127.0.0.1"], 0, secret, lambda text: print(text, file=sys.stderr))
    connect: Callable[[], StoreClient] = partial(StoreClient.connect, "127.0.0.1", server.port, secret, ANSWER_S)
    lines = [_tell(server.port, data) for data in sent]
    for fields in requests:
        client = connect()
        try:
            client.ask(0.1, *(fields or [b"count"]))
        except StoreError:
            continue
        finally:
            client.close()
    client = connect()
    client.ask(1.0, b"set", b"key", b"value")
    if (found := client.ask(1.0, b"get", b"1000", b"key")) != [b"value"]:
        sys.exit(f"the store answers {found!r}")
    client.close()
    for line in lines:
        line.close()
    server.close()


def _be_the_store(sent: list[bytes]) -> None:
    """In the child: a machine connects to a stranger, and must not take him for the store."""
    from unisono.comm.topology.authentication import Refused, Secret
    from unisono.comm.topology.store_client import StoreClient, Unreachable

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer, args=(listener, sent), daemon=True).start()
        try:
            port = listener.getsockname()[1]
            StoreClient.connect("127.0.0.1", port, Secret(b"0123456789abcdef", "the fuzzer"), JOIN_S)
        except (Refused, Unreachable):
            return
    sys.exit("a stranger was taken for the store")


def _answer(listener: socket.socket, sent: list[bytes]) -> None:
    for number in range(1000):
        try:
            line, _ = listener.accept()
            with line:
                line.sendall(sent[number % len(sent)])
                line.settimeout(JOIN_S)
                line.recv(1 << 12)
        except OSError:
            if listener.fileno() < 0:
                return


def make_port(random: Random, sandbox: Sandbox) -> Input:
    """Bytes for the port at which a machine waits for another, which does not come: it says so, whatever came."""
    sent = [_message(random) for _ in range(random.randint(1, 4))]
    return Input((), REFUSED, " | ".join(repr(data[:20]) for data in sent), call=partial(_listen, sent))


def _listen(sent: list[bytes]) -> None:
    """In the child: a machine of two, to whose port strangers talk."""
    from unisono.cli.main import main

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threading.Thread(target=lambda: [_tell(port, data) for data in sent], daemon=True).start()
    where = "--num-nodes 2 --node-id 0 --main-address 127.0.0.1 --join-timeout 2 --main-port"
    sys.argv += ["train", *TINY, "--epochs", "1", "--ranks", "1", "--out", "run", *where.split(), str(port)]
    main()


def _tell(port: int, data: bytes) -> socket.socket:
    """A connection, as soon as somebody listens, with something said."""
    for _ in range(500):
        try:
            line = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        except OSError:
            threading.Event().wait(0.02)
            continue
        with suppress(OSError):  # nobody need listen to all of it
            line.sendall(data)
        return line
    raise TimeoutError("nobody listens")
