"""Authentication: two machines prove to each other that they know one secret, without telling it.

The one idea: each side sends a fresh nonce, and an HMAC-SHA256 of both nonces, its role and the protocol's version.
What was recorded once is of no use later. The same nonces and the secret give a key for each direction; every message
after that carries an HMAC of its number and its content, so none can be altered, repeated, left out or put in between.

    hello = Hello.fresh()                                   # the one who listens sends hello.packed()
    answer, claim = respond(secret, hello, "n2")            # the one who connects sends answer
    verdict = judge(secret, hello, answer)                  # verdict.reply goes back; verdict.channel if it is welcome
    channel = claim.check(reply)                            # `Refused` if this is not the machine that was meant

`channel.seal(payload)` and `channel.unseal(sealed)` belong to one connection. Nothing here opens a socket, so every new
connection, of whatever kind, can use it.

Limits: messages are authenticated, not encrypted. Whoever records a handshake can try passwords on it at leisure: a
secret must be random, as those that unisono makes are.
"""

import hmac
import secrets
import struct
from dataclasses import dataclass, field
from typing import Self, final

VERSION = 1
MAGIC = b"unisono\n"
"""With this each side begins, in every version."""
HELLO_BYTES, ANSWER_BYTES, REPLY_BYTES = 42, 138, 33
MAC_BYTES = 32

_HELLO = struct.Struct(">8sH32s")
_ANSWER = struct.Struct(">8sH32s32s64s")
_WELCOME, _WRONG_SECRET, _OTHER_VERSION = b"+", b"-", b"v"


@final
@dataclass(frozen=True)
class Secret:
    """What all machines of a run know, and nobody else."""

    key: bytes = field(repr=False)
    source: str
    """Where it came from, in words: a file, a variable."""


class Refused(Exception):
    """The other side is not the machine that it should be, or does not take this one for it."""

    def __init__(self, reason: str, *, secret: bool = False) -> None:
        """secret: whether another secret would help."""
        super().__init__(reason)
        self.secret = secret


@final
@dataclass(frozen=True)
class Hello:
    """What the side that listens says first."""

    version: int
    nonce: bytes

    @classmethod
    def fresh(cls) -> Self:
        """One that was never used."""
        return cls(VERSION, secrets.token_bytes(32))

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """What `packed` gave on the other side."""
        _, version, nonce = _HELLO.unpack(data)
        return cls(version, nonce)

    def packed(self) -> bytes:
        """As it is sent."""
        return _HELLO.pack(MAGIC, self.version, self.nonce)


@final
class Channel:
    """The messages of one connection, in both directions, after the handshake."""

    def __init__(self, secret: Secret, nonces: bytes, *, listens: bool) -> None:
        keys = [_mac(secret, b"messages of the " + role, nonces) for role in (b"listener", b"caller")]
        self._own, self._other = keys if listens else reversed(keys)
        self._sent = self._received = 0

    def seal(self, payload: bytes) -> bytes:
        """The payload with its MAC before it."""
        mac = hmac.digest(self._own, self._sent.to_bytes(8, "big") + payload, "sha256")
        self._sent += 1
        return mac + payload

    def unseal(self, sealed: bytes) -> bytes:
        """The payload; `Refused` if it is not the next one of the other side."""
        mac, payload = sealed[:MAC_BYTES], sealed[MAC_BYTES:]
        expected = hmac.digest(self._other, self._received.to_bytes(8, "big") + payload, "sha256")
        if not hmac.compare_digest(mac, expected):
            raise Refused("a message was altered on its way")
        self._received += 1
        return payload


@final
@dataclass(frozen=True)
class Claim:
    """What the side that connects expects of the other one."""

    secret: Secret = field(repr=False)
    nonces: bytes
    version: int

    def check(self, reply: bytes) -> Channel:
        """The channel; `Refused` if the other side refuses this one, or does not know the secret itself."""
        if self.version != VERSION or reply[:1] == _OTHER_VERSION:
            theirs = f"version {self.version}" if self.version != VERSION else "another version"
            raise Refused(f"it speaks {theirs} of the protocol, and this machine version {VERSION}")
        if reply[:1] != _WELCOME:
            raise Refused("it has another secret than this machine", secret=True)
        if not hmac.compare_digest(reply[1:], _mac(self.secret, b"listener", self.nonces)):
            raise Refused("it does not know the secret, so nothing was told to it", secret=True)
        return Channel(self.secret, self.nonces, listens=False)


@final
@dataclass(frozen=True)
class Verdict:
    """What the side that listens made of an answer."""

    reply: bytes
    channel: Channel | None
    reason: str = ""
    """Why there is no channel."""


def respond(secret: Secret, hello: Hello, name: str) -> tuple[bytes, Claim]:
    """The answer to a hello, and what to check the reply against. name: of this machine, for people."""
    nonce = secrets.token_bytes(32)
    called = name.encode(errors="replace")[:64].ljust(64, b"\0")
    proof = _mac(secret, b"caller", hello.nonce + nonce + called)
    return _ANSWER.pack(MAGIC, VERSION, nonce, proof, called), Claim(secret, hello.nonce + nonce, hello.version)


def judge(secret: Secret, hello: Hello, answer: bytes) -> Verdict:
    """Whether whoever answered knows the secret."""
    magic, version, nonce, proof, called = _ANSWER.unpack(answer)
    if magic != MAGIC:
        return Verdict(b"", None, "it does not speak unisono's protocol")
    name = _readable(called)
    if version != VERSION:
        reason = f"{name}it speaks version {version} of the protocol, and this machine version {VERSION}"
        return Verdict(_OTHER_VERSION + bytes(32), None, reason)
    nonces = hello.nonce + nonce
    if not hmac.compare_digest(proof, _mac(secret, b"caller", nonces + called)):
        return Verdict(_WRONG_SECRET + bytes(32), None, f"{name}it has another secret")
    return Verdict(_WELCOME + _mac(secret, b"listener", nonces), Channel(secret, nonces, listens=True))


def pair_proof(secret: Secret, sender: int, receiver: int, nonces: bytes) -> bytes:
    """What one rank sends another over a connection that a library made. nonces: the sender's and the receiver's."""
    return _mac(secret, b"rank %d to rank %d" % (sender, receiver), nonces)


def _readable(called: bytes) -> str:
    """'(n2) ', or nothing: whoever says it proved nothing."""
    name = called.rstrip(b"\0").decode(errors="replace")
    return f"({name}) " if name.isascii() and name.isprintable() and name else ""


def _mac(secret: Secret, role: bytes, text: bytes) -> bytes:
    about = b"unisono rendezvous %d, %s: " % (VERSION, role)
    return hmac.digest(secret.key, about + text, "sha256")
