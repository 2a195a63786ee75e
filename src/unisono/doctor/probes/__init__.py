"""The probes of `unisono doctor`, in their order: one file each, with functions that return findings.

The one idea: a probe is a name, a function and how long it may take; it runs in a process of its own, so whatever it
meets (a library that crashes, a network that does not answer) costs one line and not the others. Adding one is adding a
file and its row here. None of them imports anything heavy before it is called.
"""

from dataclasses import dataclass
from typing import final

PATIENCE_S = 22.0
"""Nothing that the doctor starts is waited for longer than this, and a few seconds for ending it: half a minute."""


@final
@dataclass(frozen=True)
class Probe:
    """Where it is (module:function below this package) and what it looks at, for a line when it does not answer."""

    place: str
    about: str
    self_test: bool = False
    timeout_s: float = PATIENCE_S


PROBES = {
    "machine": Probe("machine:probe", "cores, memory and disk"),
    "arithmetic": Probe("arithmetic:probe", "processor and BLAS"),
    "arena": Probe("arena:probe", "shared memory"),
    "mpi": Probe("mpi:probe", "MPI"),
    "torch": Probe("torch:probe", "torch"),
    "gloo": Probe("gloo:probe", "gloo"),
    "accelerate": Probe("accelerate:probe", "Accelerate"),
    "slurm": Probe("slurm:probe", "SLURM"),
    "energy": Probe("energy:probe", "energy"),
    "network": Probe("network:probe", "host name and ports"),
    "kernels": Probe("kernels:probe_numpy", "kernels, NumPy", self_test=True),
    "kernels-torch": Probe("kernels:probe_torch", "kernels, torch", self_test=True),
    "bits": Probe("training:probe_numpy", "self-test, NumPy", self_test=True),
    "bits-torch": Probe("training:probe_torch", "self-test, torch", self_test=True),
}
