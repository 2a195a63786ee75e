"""How many cores others kept busy while something was measured: whether its numbers can be trusted.

The one idea: what the machine did (/proc/stat) less what this process and its children did, which must have ended.

    since = Bystanders(); measure(); print(f"{since.cores():.2f} cores")

Limits: Linux. In a container others are those of the whole host. Load averages say less: they lag by a minute.
"""

import os
import time
from pathlib import Path
from typing import final


@final
class Bystanders:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._begun, self._others_s = time.monotonic(), _others_s()

    def cores(self) -> float:
        """Cores in use by others, on average since then."""
        return max(0.0, (_others_s() - self._others_s) / (time.monotonic() - self._begun))


def _others_s() -> float:
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    busy_s = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return busy_s - sum(os.times()[:4])
