"""gloo: torch's transport between processors; 2 ranks are started for real."""

from importlib.util import find_spec

from unisono.doctor.exchange import exchange
from unisono.doctor.finding import Finding

FIX = "let this host's name lead to an address of its own in /etc/hosts, or set GLOO_SOCKET_IFNAME to an interface"


def probe() -> list[Finding]:
    """Nothing where torch is not: its own probe says so."""
    return [exchange("gloo, 2 ranks", "gloo", "native", FIX)] if find_spec("torch") else []
