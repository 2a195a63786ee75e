"""What a rank tells of itself and of its node, to be compared with the others. JSON only.

python -c "from unisono.doctor.machines.facts import facts_here; print(facts_here('gloo', ''))"
"""

import os
import platform
import socket
from importlib import metadata
from typing import Any

from unisono import __version__
from unisono.comm.topology.shared_machine import node_key
from unisono.environment.os_environ import THREADS, launcher_text
from unisono.resources import available_bytes, usable_cores
from unisono.training.fingerprint import fingerprint

PACKAGES = ("numpy", "torch", "mpi4py")
_MOST_LETTERS = 1000


def facts_here(transport: str, address: str) -> dict[str, Any]:
    """transport: what this rank was reached by; address: by which others reach its machine, if that is known."""
    return {
        "host": socket.gethostname(),
        "node": node_key().hex(),
        "address": address,
        "unisono": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "packages": {name: _version(name) for name in PACKAGES},
        "MPI": _library() if transport == "mpi" else "",
        "fingerprint": fingerprint(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "cores": usable_cores(),
        "load": round(os.getloadavg()[0], 2),
        "available_bytes": available_bytes(),
        "threads": launcher_text(*THREADS),
    }


def are_facts(told: Any) -> bool:
    """Whether another rank, of whatever version, can have told this of itself; what it says more is not looked at."""
    try:
        texts = [told[name] for name in ("host", "node", "address", "unisono", "Python", "MPI")]
        texts += [told["packages"][name] for name in PACKAGES]
        return (
            all(isinstance(text, str) and len(text) < _MOST_LETTERS for text in texts)
            and isinstance(told["fingerprint"], dict)
            and isinstance(told["fingerprint"]["cpu"], str)
            and all(type(core) is int for core in [*told["affinity"], told["cores"]])
        )
    except (TypeError, KeyError):
        return False


def _version(package: str) -> str:
    """Without importing it; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _library() -> str:
    from unisono.comm.mpi.library import library_version

    return library_version()
