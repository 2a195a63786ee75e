"""Route: which of this machine's addresses others reach it by.

The one idea: the kernel knows. It is asked for the way to the main node, and the address at this end of that way is the
one to listen on; host names, which often resolve to 127.0.0.1 or not at all, are not asked for this machine.

    own_address("10.0.0.1"), address_of("eth0")

Limits: IPv4 first, IPv6 where there is nothing else. No packet is sent: a way may exist and still lead nowhere.
"""

import ipaddress
import socket

import psutil

from unisono.errors import UserError

_ANY_PORT = 9
"""Nothing is sent to it."""


def resolve(host: str) -> str:
    """The address of a host; a `UserError` if its name means nothing here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(
            f"the host name {host!r} does not resolve on {socket.gethostname()}: {error.strerror}",
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


def is_own(address: str) -> bool:
    """Whether it is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


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
