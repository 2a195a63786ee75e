"""Addresses: by which of them other machines reach this one.

The one idea: the kernel knows. It is asked for the way to the main node, and the address at this end of that way is the
one to listen on; host names, which often resolve to 127.0.0.1 or not at all, are not asked for this machine.

    own_address("10.0.0.1"), address_of("eth0")

Where no main node was named, as under MPI, the addresses of one machine are tried from the others (`route_to`).
Before a library connects, which would have its own words for it in the user's terminal, a port is knocked at
(`connect_error`).

Limits: IPv4 first, IPv6 where there is nothing else. `own_address` sends no packet: a way may exist and still lead
nowhere.
"""

import ipaddress
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from unisono.errors import UserError

_ANY_PORT = 9
"""Nothing is sent to it."""
_KNOCK_S = 3.0
_AGAIN_S = 0.1


def resolve(host: str) -> str:
    """The address of a host; a `UserError` if its name means nothing here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a..b, or a part that is too long
        reason = error.strerror if isinstance(error, OSError) else "it is no host name"
        raise UserError(
            f"the host name {host!r} does not resolve on {socket.gethostname()}: {reason}",
            hint="give an IP address, or add the name to /etc/hosts of every node",
        ) from None
    addresses = [str(entry[4][0]) for entry in found]
    return next((address for address in addresses if ":" not in address), addresses[0])


def own_address(host: str) -> str:
    """This machine's address on the way to `host`: 127.0.0.1 if that is this machine, or there is no way to it."""
    address = resolve(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        try:
            way.connect((address, _ANY_PORT))
        except OSError:
            return "127.0.0.1"
        found = str(way.getsockname()[0])
    return "127.0.0.1" if is_loopback(found) or is_own(address) else found


def is_loopback(address: str) -> bool:
    """Whether others cannot reach it."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_link_local(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_link_local


def is_own(address: str) -> bool:
    """Whether it is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def own_addresses() -> list[str]:
    """Those by which others may reach this machine, IPv4 first; which of them they do, they have to try."""
    found, up = psutil.net_if_addrs(), psutil.net_if_stats()
    entries = [entry for name, several in found.items() if name in up and up[name].isup for entry in several]
    return [
        str(entry.address)
        for family in (socket.AF_INET, socket.AF_INET6)
        for entry in entries
        if entry.family == family and not is_loopback(entry.address) and not _is_link_local(entry.address)
    ]


def route_to(addresses: Sequence[str], port: int) -> str:
    """The first of another machine's addresses at which a port answers from here; empty: none. Nothing is sent."""
    for address in addresses:
        if not is_own(address):  # networks inside a machine (of containers) have the same addresses everywhere
            with suppress(OSError), socket.create_connection((address, port), _KNOCK_S):
                return address
    return ""


def connect_error(host: str, port: int, timeout_s: float) -> str:
    """Why nobody listened there within that time; empty, at once, if somebody does. Nothing is sent."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((host, port), max(deadline - time.monotonic(), _AGAIN_S)).close()
            return ""
        except UnicodeError:
            return "it is no host name"
        except OSError as error:  # a name may be unknown, a machine be starting, a program not listen yet
            if time.monotonic() + _AGAIN_S > deadline:
                return error.strerror or str(error)
        time.sleep(_AGAIN_S)


def interface_of(address: str) -> str:
    """The network interface that has this address; empty if none has."""
    found = psutil.net_if_addrs().items()
    return next((name for name, entries in found if any(entry.address == address for entry in entries)), "")


def address_of(interface: str) -> str:
    """The address of a network interface of this machine."""
    found = psutil.net_if_addrs()
    if interface not in found:
        raise UserError(
            f"--interface {interface}: there is none of that name on {socket.gethostname()}, but {', '.join(found)}",
            hint="`ip address` shows them",
        )
    for family in (socket.AF_INET, socket.AF_INET6):
        for entry in found[interface]:
            if entry.family == family:
                return str(entry.address)
    raise UserError(f"--interface {interface} has no IP address", hint="`ip address` shows which ones have")
