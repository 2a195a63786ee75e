"""The probes of `unisono doctor`, in their order: functions that return findings.

The one idea: a probe is a name, a function and a time-out. It runs in a separate process, so a library that crashes or
a network that does not answer costs one line and does not affect other probes. To add a probe, write a function and add
its row here. A probe imports heavy packages only when it is called.
"""

from dataclasses import dataclass
from typing import final

PATIENCE_S = 22.0
"""The longest wait for a probe; ending it takes a few seconds more, so at most half a minute in all."""


@final
@dataclass(frozen=True)
class Probe:
    """A function ("module:function" in this package), and what it checks: shown while it runs and when it fails."""

    place: str
    about: str
    self_test: bool = False
    timeout_s: float = PATIENCE_S


PROBES = {
    "machine": Probe("machine:probe", "cores, memory and disk"),
    "arithmetic": Probe("arithmetic:probe", "processor and BLAS"),
    "arena": Probe("transports:probe_arena", "shared memory"),
    "mpi": Probe("transports:probe_mpi", "MPI"),
    "torch": Probe("torch:probe", "torch"),
    "gloo": Probe("transports:probe_gloo", "gloo"),
    "accelerate": Probe("transports:probe_accelerate", "Accelerate"),
    "slurm": Probe("slurm:probe", "SLURM"),
    "energy": Probe("energy:probe", "energy"),
    "network": Probe("network:probe", "host name and ports"),
    "kernels": Probe("kernels:probe_numpy", "kernels, NumPy", self_test=True),
    "kernels-torch": Probe("kernels:probe_torch", "kernels, torch", self_test=True),
    "bits": Probe("training:probe_numpy", "self-test, NumPy", self_test=True),
    "bits-torch": Probe("training:probe_torch", "self-test, torch", self_test=True),
}
