"""Self-tests: kernels whose bits must not depend on addresses, and a training whose bits must not depend on ranks.

    python -m unisono.doctor.probe_entry kernels
    python -m unisono.doctor.probe_entry bits

The one idea: try the promise of equal bits on this machine. It rests on the assumption that the processor and its
libraries compute a shard with the same bits wherever it lies in memory; that is tried layer by layer
(`models/kernel_check.py`), with sizes drawn anew each time. Then the command trains as a user would, in directories of
its own, and the hashes of the weights are compared.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from unisono.doctor.finding import SAME_BITS, Finding
from unisono.doctor.probes import PATIENCE_S
from unisono.doctor.probes.transports import last_line
from unisono.environment.os_environ import child_environment
from unisono.errors import UnisonoError
from unisono.files import read_file
from unisono.launch.launcher_commands import python
from unisono.models.kernel_check import Case, Trials, dependences, numpy_cases
from unisono.parsing import MOST_JSON_BYTES, parse_json
from unisono.supervise.children import die_with_parent

TRIALS = Trials(groups=3, offsets_bytes=(4, 8, 16, 60), borders=(1,))
KERNELS_FIX = "use another version of the library that computes, and paste `unisono doctor --json` into a bug report"
RANKS = (1, 2)
OPTIONS = ("--epochs", "3", "--batch-size", "256")
TRAINING_FIX = "paste `unisono doctor --json` into a bug report: this must not happen"


def probe_kernels_numpy() -> list[Finding]:
    """Every layer of the NumPy engine."""
    seed = time.time_ns() % 2**32
    return [judge_kernels("kernels, NumPy", numpy_cases(seed), seed)]


def probe_kernels_torch() -> list[Finding]:
    """Every kind of layer in torch, in fp32 and bf16; nothing where it is not installed."""
    return list(_torch_kernels()) if find_spec("torch") else []


def _torch_kernels() -> Iterator[Finding]:
    from unisono.models.torch.kernel_cases import torch_cases

    seed = time.time_ns() % 2**32
    for precision in ("fp32", "bf16"):
        yield judge_kernels(f"kernels, torch {precision}", torch_cases(seed, precision), seed)


def judge_kernels(name: str, cases: dict[str, Case], seed: int) -> Finding:
    """Tries all of them."""
    found = {kind: dependences(case.make(), *case[1:], TRIALS) for kind, case in cases.items()}
    differing = {kind: list(what) for kind, what in found.items() if what}
    facts = {"seed": seed, "layers": list(cases), "differing": differing}
    if differing:
        kind, what = next(iter(differing.items()))
        told = f"the bits of a shard depend on {what[0]} ({kind}; {len(differing)} of {len(cases)} kinds of layers)"
        return Finding(name, "failed", told, KERNELS_FIX, facts)
    told = f"a shard has the same bits at every address, in every position, for {len(cases)} kinds of layers"
    return Finding(name, "ok", told, facts=facts)


def probe_training_numpy() -> list[Finding]:
    """A NumPy network on the bundled digits."""
    return [compare(SAME_BITS, ["--engine", "numpy"])]


def probe_training_torch() -> list[Finding]:
    """The same network by torch; nothing where it is not installed."""
    return [compare(f"{SAME_BITS}, torch", ["--engine", "torch"])] if find_spec("torch") else []


def compare(name: str, options: list[str]) -> Finding:
    """Trains on each of `RANKS`."""
    with tempfile.TemporaryDirectory(prefix="unisono-doctor-") as folder:
        try:
            hashes = {ranks: train(Path(folder) / f"{ranks}", [*options, "--ranks", f"{ranks}"]) for ranks in RANKS}
        except UnisonoError as error:
            return Finding(name, "failed", str(error), "try it yourself: unisono train")
    return judge_weights(name, hashes)


def judge_weights(name: str, hashes: dict[int, str]) -> Finding:
    """Whether all hashes of weights, by number of ranks, are one."""
    facts = {f"weights_sha256 on {ranks}": value for ranks, value in hashes.items()}
    counts = " and ".join(map(str, hashes))
    if len(set(hashes.values())) > 1:
        return Finding(name, "failed", f"trained on {counts} ranks: the weights differ", TRAINING_FIX, facts)
    told = f"trained on {counts} ranks: weights {next(iter(hashes.values()))[:12]}... on both"
    return Finding(name, "ok", told, facts=facts)


def train(out: Path, options: list[str]) -> str:
    """The hash of the weights that a training ended with."""
    command = python("-m", "unisono", "train", *OPTIONS, *options, "--out", str(out))
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=False,
            stdin=subprocess.DEVNULL, env=child_environment(None),
            preexec_fn=partial(die_with_parent, os.getpid()),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnisonoError(f"a training did not end within {PATIENCE_S:g} s: {' '.join(options)}") from None
    if ended.returncode:
        raise UnisonoError(f"a training failed ({' '.join(options)}): {last_line(ended.stderr or ended.stdout)}")
    return str(parse_json(read_file(out / "summary.json", MOST_JSON_BYTES))["weights_sha256"])
