"""The self-test: the same small training on 1 and on 2 ranks, which must end with the same bits.

    python -m unisono.doctor.probe_entry bits

The one idea: run the command as a user would, in directories of its own, and compare the hashes that it leaves.
"""

import os
import subprocess
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from unisono.doctor.finding import SAME_BITS, Finding
from unisono.doctor.probes import PATIENCE_S
from unisono.doctor.two_ranks import last_line
from unisono.environment.variables import child_environment
from unisono.errors import UnisonoError
from unisono.files import read_file
from unisono.launch.commands import python
from unisono.parsing import MOST_JSON_BYTES, parse_json
from unisono.supervise.children import die_with_parent

RANKS = (1, 2)
OPTIONS = ("--epochs", "3", "--batch-size", "256")
FIX = "paste `unisono doctor --json` into a bug report: this must not happen"


def probe_numpy() -> list[Finding]:
    """A NumPy network on the bundled digits."""
    return [compare(SAME_BITS, ["--engine", "numpy"])]


def probe_torch() -> list[Finding]:
    """The same network by torch; nothing where it is not installed."""
    return [compare(f"{SAME_BITS}, torch", ["--engine", "torch"])] if find_spec("torch") else []


def compare(name: str, options: list[str]) -> Finding:
    """Trains on each of `RANKS`."""
    with tempfile.TemporaryDirectory(prefix="unisono-doctor-") as folder:
        try:
            hashes = {ranks: train(Path(folder) / f"{ranks}", [*options, "--ranks", f"{ranks}"]) for ranks in RANKS}
        except UnisonoError as error:
            return Finding(name, "failed", str(error), "try it yourself: unisono train")
    return judge(name, hashes)


def judge(name: str, hashes: dict[int, str]) -> Finding:
    """Whether all hashes of weights, by number of ranks, are one."""
    facts = {f"weights_sha256 on {ranks}": value for ranks, value in hashes.items()}
    counts = " and ".join(map(str, hashes))
    if len(set(hashes.values())) > 1:
        return Finding(name, "failed", f"trained on {counts} ranks: the weights differ", FIX, facts)
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
