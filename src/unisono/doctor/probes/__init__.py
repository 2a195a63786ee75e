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
    "machine": Probe("machine:probe_machine", "cores, memory and disk"),
    "arithmetic": Probe("compute:probe_processor", "processor and BLAS"),
    "arena": Probe("transports:probe_arena", "shared memory"),
    "mpi": Probe("transports:probe_mpi", "MPI"),
    "torch": Probe("compute:probe_torch", "torch"),
    "gloo": Probe("transports:probe_gloo", "gloo"),
    "accelerate": Probe("transports:probe_accelerate", "Accelerate"),
    "slurm": Probe("slurm:probe", "SLURM"),
    "energy": Probe("machine:probe_energy", "energy"),
    "network": Probe("transports:probe_network", "host name and ports"),
    "kernels": Probe("equal_bits:probe_kernels_numpy", "kernels, NumPy", self_test=True),
    "kernels-torch": Probe("equal_bits:probe_kernels_torch", "kernels, torch", self_test=True),
    "bits": Probe("equal_bits:probe_training_numpy", "self-test, NumPy", self_test=True),
    "bits-torch": Probe("equal_bits:probe_training_torch", "self-test, torch", self_test=True),
}
