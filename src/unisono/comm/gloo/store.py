"""The store: where ranks of torch.distributed find each other before anybody is connected to anybody.

Its one idea: whoever has come writes into a store that rank 0 serves (torchrun's agent does, under torchrun), and goes
on when all have come (`comm/topology/rendezvous.py`): who is missing is known before gloo or NCCL could hang for want
of it. The store that rank 0 serves is our own (`comm/topology/store_server.py`), since torch's lets anybody in, on
all addresses:
whoever connects proves the secret first, and so does rank 0. torch calls it as it calls its own stores.

    store, at = open_store(rank, size, "10.0.0.1:29500", RendezvousOptions(main="10.0.0.1", secret=secret))

Limits: without the process that serves it nobody meets. torch keeps no Python object alive: whoever wraps a store keeps
it (`prefixed`). Under torchrun the store is torch's, which nothing protects (docs/security.md).
"""

import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from weakref import WeakValueDictionary

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # public all the same
from torch.distributed.rendezvous import rendezvous

from unisono.comm.topology.addresses import address_of, connect_error, is_loopback, is_own, own_addresses, resolve
from unisono.comm.topology.authentication import Refused, Secret
from unisono.comm.topology.rendezvous import RanksMissing, RendezvousOptions, exchange_addresses
from unisono.comm.topology.store_client import StoreClient, Unreachable
from unisono.comm.topology.store_server import StoreServer
from unisono.errors import UserError
from unisono.safe_print import print

_DEFAULT_WAIT_S = 300.0
_KEYS_AT_ONCE = 1000
_servers: "WeakValueDictionary[tuple[str, int, bytes], StoreServer]" = WeakValueDictionary()
"""Of this process: several worlds that it makes one after the other share one."""


class SecretStore(Store):
    """A connection to a `StoreServer`, as torch wants it. server: kept until this store goes."""

    def __init__(self, client: StoreClient, secret: Secret, server: StoreServer | None = None) -> None:
        super().__init__()
        self.secret = secret
        self._client, self._server, self._wait_s = client, server, _DEFAULT_WAIT_S

    @property
    def refusals(self) -> Sequence[str]:
        """Whom the server has refused so far, and why, if it is this process's."""
        return self._server.refusals if self._server else ()

    def close(self) -> None:
        """Nothing can be asked after it; the server ends with the last store that keeps it."""
        self._client.close()
        self._server = None

    def __del__(self) -> None:
        self.close()

    # torch gives keys as text, values as bytes or as text

    def set(self, key: str, value: str | bytes) -> None:
        self._client.ask(0.0, b"set", key.encode(), _as_bytes(value))

    def get(self, key: str) -> bytes:
        return self._client.ask(self._wait_s, b"get", _milliseconds(self._wait_s), key.encode())[0]

    def add(self, key: str, amount: int) -> int:
        return int(self._client.ask(0.0, b"add", key.encode(), b"%d" % amount)[0])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        fields = _as_bytes(expected), _as_bytes(desired)
        return self._client.ask(0.0, b"compare_set", key.encode(), *fields)[0]

    def check(self, keys: Sequence[str]) -> bool:
        return self._client.ask(0.0, b"check", *(key.encode() for key in keys)) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        wait_s = self._wait_s if timeout is None else timeout.total_seconds()
        if keys:
            self._client.ask(wait_s, b"wait", _milliseconds(wait_s), *(key.encode() for key in keys))

    def delete_key(self, key: str) -> bool:
        return self._client.ask(0.0, b"delete", key.encode()) == [b"1"]

    def delete_under(self, prefix: str) -> int:
        """How many keys began with it, and are gone."""
        return int(self._client.ask(0.0, b"delete_under", prefix.encode())[0])

    def num_keys(self) -> int:
        return int(self._client.ask(0.0, b"count")[0])

    deleteKey, getNumKeys = delete_key, num_keys  # so torch's PrefixStore calls them

    def append(self, key: str, value: str | bytes) -> None:
        self._client.ask(0.0, b"append", key.encode(), _as_bytes(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < len(keys):  # an answer has as many as fit into it
            some = [key.encode() for key in keys[len(found) : len(found) + _KEYS_AT_ONCE]]
            found += self._client.ask(self._wait_s, b"get", _milliseconds(self._wait_s), *some)
        return found

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> "SecretStore":
        return self  # several threads may use it

    def set_timeout(self, timeout: timedelta) -> None:
        self._wait_s = timeout.total_seconds()

    @property
    def port(self) -> int:
        """Of the server that this store keeps; 0 without one."""
        return self._server.port if self._server else 0

    @property
    def addresses(self) -> list[str]:
        """Where that server listens."""
        return self._server.addresses if self._server else []

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` do."""
        return timedelta(seconds=self._wait_s)


class _Prefixed(PrefixStore):
    def __init__(self, prefix: str, store: Store, secret: Secret | None) -> None:
        super().__init__(prefix, store)
        self.kept, self.path = store, f"{prefix}/"
        self.secret = secret


def secret_of(store: Store) -> Secret | None:
    """What all who reach the store know; None: nothing, as with torchrun's."""
    return store.secret if isinstance(store, SecretStore | _Prefixed) else None


def prefixed(prefix: str, store: Store, secret: Secret | None = None) -> Store:
    """The part of a store under a prefix; keeps the store, which torch's own class does not if it is a Python one.

    secret: what all who use it know, if the store itself has none, as a file."""
    return _Prefixed(prefix, store, secret or secret_of(store))


def forget(prefix: str, store: Store) -> None:
    """Removes what is under a prefix, which nobody needs any more. Only our own store is bounded, and needs it."""
    path = f"{prefix}/"
    while isinstance(store, _Prefixed):
        path, store = store.path + path, store.kept
    if isinstance(store, SecretStore):
        store.delete_under(path)


def open_store(rank: int, size: int, address: str | None, join: RendezvousOptions) -> tuple[Store, str]:
    """A store that all reach, when all have come, and this rank's address for the others. address: "host:port" of rank
    0; with None torch finds it, as under torchrun."""
    try:
        store = _torchs_store(rank, size, join) if address is None else _own_store(rank, address, join)
        # A process may make several worlds in one store; every rank makes them in the same order.
        number = 1 if join.once else store.add(f"unisono/worlds/{rank}", 1)
    except (RuntimeError, ValueError) as error:
        raise _no_store(rank, address or join.at, join, str(error)) from error
    own = prefixed(f"unisono/{number}", store)
    return own, exchange_addresses(own, rank, size, join, store.refusals if isinstance(store, SecretStore) else ())


def serve_store(addresses: Sequence[str], port: int, secret: Secret, who: str) -> SecretStore:
    """Serves a store on these addresses; OSError if that cannot be. who: says whom it refused."""
    key = addresses[0], port, secret.key
    server = _servers.get(key) if port else None
    if server is None:
        server = StoreServer(
            addresses, port, secret, lambda text: print(f"unisono: {who}: {text}", file=sys.stderr, flush=True)
        )
        _servers[addresses[0], server.port, secret.key] = server
    return SecretStore(StoreClient.connect(server.addresses[0], server.port, secret, _DEFAULT_WAIT_S), secret, server)


def reach_store(host: str, port: int, secret: Secret, timeout_s: float, who: str) -> SecretStore:
    """The store that another machine serves. A `UserError` if it refuses this one, or is none; `Unreachable`."""
    try:
        return SecretStore(StoreClient.connect(host, port, secret, timeout_s), secret)
    except Refused as refused:
        hint = (
            f"put the secret of the machine that has {host} (usually its file ~/.config/unisono/secret, mode 0600) in "
            f"the place of {secret.source}, or give --secret-file FILE on every machine. If another job listens "
            f"there, give all machines of this one another --main-port than {port}"
            if refused.secret
            else "install the same unisono on every machine; does another program have that port?"
        )
        mine = f" (here it is from {secret.source})" if refused.secret else ""
        raise UserError(
            f"{who} on {socket.gethostname()}: refused at {host}:{port}: {refused}{mine}", hint=hint
        ) from None


def _own_store(rank: int, address: str, join: RendezvousOptions) -> Store:
    host, port = _split(address)
    if join.secret is None:
        raise UserError(f"{join.noun} {rank}: there is no secret to meet others with", hint="give Join a secret")
    if rank:
        try:
            return reach_store(host, port, join.secret, join.timeout_s, f"{join.noun} {rank}")
        except Unreachable as error:
            raise _no_store(rank, address, join, f"{error}, for {join.timeout_s:g} s") from None
    try:
        return serve_store(_listening(host, join), port, join.secret, f"{join.noun} 0")
    except OSError as error:
        raise _no_store(0, address, join, error.strerror or str(error)) from None


def _listening(host: str, join: RendezvousOptions) -> list[str]:
    """Where rank 0 listens: on the main address, and nothing else, if that is one that others can use."""
    address = resolve(host)
    if is_own(address) and not (is_loopback(address) and host not in ("localhost", address)):
        return [address]
    # The machine's own name often means 127.0.1.1 on itself, and behind a service it has an address of its own: the
    # others use one that is not known here.
    outer = [address_of(join.interface)] if join.interface else own_addresses()
    return [*outer, *([address] if is_own(address) else [])] or ["127.0.0.1"]


def _torchs_store(rank: int, size: int, join: RendezvousOptions) -> Store:
    """The one of torchrun's agent. torch is called when there is somebody to talk to: while it tries in vain it fills
    the terminal with its own stack traces, and it tries for twice the time that it was given."""
    if rank and join.at:
        host, port = _split(join.at)
        if reason := connect_error(host, port, join.timeout_s):
            raise _no_store(rank, join.at, join, f"{reason}, for {join.timeout_s:g} s")
    found: Store = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=join.timeout_s)))[0]
    return found


def _no_store(rank: int, where: str, join: RendezvousOptions, reason: str) -> RanksMissing:
    return RanksMissing(
        f"{join.noun} {rank}: no store at {where or 'the address that torch read from the environment'}: {reason}",
        missing=[0] if rank else [],
        hint=f"is {join.noun} 0 running on that host, and is the port its own? --join-timeout waits longer"
        if rank
        else "is the port free?",
    )


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise UserError(f"{address!r} is no address", hint='write "host:port", such as "10.0.0.1:29500"')
    return host.strip("[]"), int(port)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _milliseconds(seconds: float) -> bytes:
    return b"%d" % max(0, round(seconds * 1000))
