"""A port for a server that a test starts: one that is free, and that nobody is given meanwhile.

    address = f"127.0.0.1:{free_port()}"

The one idea: what the kernel gives to those who ask for any port is not far from what it gave before, and until the
server binds it another test may be given the same. So it is drawn from below that range.
"""

import random
import socket
from pathlib import Path

LEAST, LAUNCHERS = 10_000, range(20_000, 30_000)
"""Ports of launchers (torchrun, mpirun, our own) are left out."""


def free_port() -> int:
    """On 127.0.0.1."""
    start = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    there = [port for port in range(LEAST, start) if port not in LAUNCHERS]
    rng = random.Random()  # of its own: tests may have seeded the common one
    for port in [*rng.sample(there, min(100, len(there))), 0]:
        try:
            with socket.create_server(("127.0.0.1", port)) as free:
                return int(free.getsockname()[1])
        except OSError:
            continue  # somebody has it
    raise AssertionError("no port is free")
