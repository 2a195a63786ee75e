"""gloo: torch's transport between processors; 2 ranks are started for real."""

from importlib.util import find_spec

from unisono.doctor.finding import Finding
from unisono.doctor.two_ranks import exchange

FIX = "let 127.0.0.1 through: is the loopback interface up (`ip link show lo`)? A firewall may be in the way"


def probe() -> list[Finding]:
    """Nothing where torch is not: its own probe says so."""
    return [exchange("gloo, 2 ranks", "gloo", "native", FIX)] if find_spec("torch") else []
