"""What ranks on several processes meet by: the host's name, and ports."""

import errno
import ipaddress
import socket

from unisono.doctor.finding import Finding

TORCHRUN_PORT = 29500
"""torchrun's, unless it is told another."""


def probe() -> list[Finding]:
    """Between nodes the name counts, on one machine only ports of loopback."""
    return [name(socket.gethostname()), ports(TORCHRUN_PORT)]


def name(host: str) -> Finding:
    """Whether the host's own name leads to an address that other nodes could use."""
    fix = "give it a line in /etc/hosts with the address of the network, or set GLOO_SOCKET_IFNAME=eth0 (`ip address`)"
    other = "unisono looks for the way to other nodes itself, but torch's gloo needs an address"
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        told = f"{host} leads nowhere ({error.strerror}): {other}"
        return Finding("host name", "warning", told, fix, {"host": host, "addresses": []})
    addresses = sorted(str(address) for address in found)
    facts = {"host": host, "addresses": addresses}
    if all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        told = f"{host} leads to {', '.join(addresses)} only: {other}"
        return Finding("host name", "warning", told, fix, facts)
    return Finding("host name", "ok", f"{host} is {', '.join(addresses)}", facts=facts)


def ports(usual: int) -> Finding:
    """Whether one can listen on loopback at all, and whether torchrun's usual port is free."""
    try:
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            any_port.listen()
    except OSError as error:
        told = f"cannot listen on 127.0.0.1: {error.strerror}"
        return Finding("ports", "warning", told, "is the loopback interface up? `ip link set lo up`")
    try:
        with socket.socket() as probed:
            probed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probed.bind(("", usual))
    except OSError as error:
        why = "taken" if error.errno == errno.EADDRINUSE else f"not to be had: {error.strerror}"
        told = f"loopback works; {usual}, torchrun's usual port, is {why}"
        return Finding("ports", "warning", told, "torchrun --standalone takes a free one, --master-port another")
    return Finding("ports", "ok", f"loopback works; {usual}, torchrun's usual port, is free")
