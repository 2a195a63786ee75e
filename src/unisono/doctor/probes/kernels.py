"""Kernels: whether this processor and its libraries compute a shard with the same bits wherever it lies in memory.

    python -m unisono.doctor.probe_entry kernels

The one idea: "same bits on any number of ranks" rests on this assumption, so it is tried here, layer by layer
(`models/kernel_check.py`), with sizes that are drawn anew each time.
"""

import time
from collections.abc import Iterator
from importlib.util import find_spec

from unisono.doctor.finding import Finding
from unisono.models.kernel_check import Case, Trials, dependences, numpy_cases

TRIALS = Trials(groups=3, offsets_bytes=(4, 8, 16, 60), borders=(1,))
FIX = "use another version of the library that computes, and paste `unisono doctor --json` into a bug report"


def probe_numpy() -> list[Finding]:
    """Every layer of the NumPy engine."""
    seed = time.time_ns() % 2**32
    return [judge("kernels, NumPy", numpy_cases(seed), seed)]


def probe_torch() -> list[Finding]:
    """Every kind of layer in torch, in fp32 and bf16; nothing where it is not installed."""
    return list(_probe_torch()) if find_spec("torch") else []


def _probe_torch() -> Iterator[Finding]:
    from unisono.models.torch.kernel_cases import torch_cases

    seed = time.time_ns() % 2**32
    for precision in ("fp32", "bf16"):
        yield judge(f"kernels, torch {precision}", torch_cases(seed, precision), seed)


def judge(name: str, cases: dict[str, Case], seed: int) -> Finding:
    """Tries all of them."""
    found = {kind: dependences(case.make(), *case[1:], TRIALS) for kind, case in cases.items()}
    differing = {kind: list(what) for kind, what in found.items() if what}
    facts = {"seed": seed, "layers": list(cases), "differing": differing}
    if differing:
        kind, what = next(iter(differing.items()))
        told = f"the bits of a shard depend on {what[0]} ({kind}; {len(differing)} of {len(cases)} kinds of layers)"
        return Finding(name, "failed", told, FIX, facts)
    told = f"a shard has the same bits at every address, in every position, for {len(cases)} kinds of layers"
    return Finding(name, "ok", told, facts=facts)
