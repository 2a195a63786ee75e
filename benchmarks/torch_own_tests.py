"""torch's own tests of collectives and of DDP, run over the backend "unisono": what passes, and what does not apply.

    python benchmarks/torch_own_tests.py                     # all that need no GPU, about five minutes on 2 cores
    python benchmarks/torch_own_tests.py --only all_reduce   # those whose name fits a pattern
    python benchmarks/torch_own_tests.py --backend gloo      # the same tests over gloo, to compare with

torch ships these tests with its package (`torch.testing._internal.distributed.distributed_test`), written for gloo,
NCCL and MPI. unisono stands in for gloo here, as with `unisono launch --replace-gloo`, so that those for gloo apply.
Prints a line for each test that fails or does not apply, and the totals; `--list FILE` keeps a line for each test. The
exit code is 1 if a test fails. What fails is tried over gloo: if it fails there as well, it does not apply.

Limits: needs the package expecttest. Each test starts 4 ranks, or 8 if it asks for more, and is ended after two
minutes. Tests that torch skips without GPUs are counted as "does not apply". Events of the profiler are not compared.
"""

import argparse
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from importlib.util import find_spec

_GPU = re.compile(r"gpu|cuda|nccl|multigpu|sync_batch_?norm|SyncBatchNorm", re.IGNORECASE)

PASSED, FAILED, SKIPPED = "passed", "failed", "does not apply"

_WORDS = "compares the text of gloo's error: with any text of a RuntimeError, as raised here, it passes"
NOT_APPLICABLE = {
    "test_barrier_timeout_full_group": _WORDS,
    "test_barrier_timeout_group": _WORDS,
    "test_ddp_logging_data_cpu": "compares the name in the log of DDP with gloo: without that line it passes",
    "test_monitored_barrier_failure_order": _WORDS,
    "test_monitored_barrier_gloo": _WORDS,
    "test_monitored_barrier_gloo_rank_0_timeout": _WORDS,
    "test_monitored_barrier_gloo_subgroup": _WORDS,
    "test_monitored_barrier_wait_all_ranks": _WORDS,
}
"""Tests that look at gloo itself, and why nothing follows from them for another backend."""

_RANKS = (4, 8)
"""For each test the first number that is enough for it."""

os.environ.setdefault("BACKEND", "gloo")
os.environ["WORLD_SIZE"] = str(_RANKS[0])
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="unisono-torch-tests-"))

if find_spec("expecttest") is None:
    sys.exit("torch_own_tests.py: torch's tests need the package expecttest\nHINT: pip install expecttest")

# After the variables, which it reads when it is imported.
from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

# Events of the profiler: those that tests look for are named after gloo.
distributed_test.PROFILING_SUPPORTED_BACKENDS = distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS = []


class TorchOwnTests(TestDistBackend, DistributedTest._DistTestBase):
    """Ranks are forked: torch spawns them, and then importing torch takes longer than most tests."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)


for _name in dir(TorchOwnTests):
    if "all_to_all" in _name:  # marked as for MPI alone, from before gloo had it
        getattr(TorchOwnTests, _name).__dict__.pop("__unittest_skip__", None)


def run_one(name: str, backend: str) -> tuple[str, str]:
    """What became of a test, and why if it did not pass."""
    if backend == "unisono" and name in NOT_APPLICABLE:
        return SKIPPED, NOT_APPLICABLE[name]
    for ranks in _RANKS:
        os.environ["WORLD_SIZE"] = str(ranks)
        TorchOwnTests(name).run(result := unittest.TestResult())
        if not any("small world size" in reason for _, reason in result.skipped):
            break
    if result.skipped:
        return SKIPPED, result.skipped[0][1]
    if not (problems := result.failures + result.errors):
        return PASSED, ""
    text = problems[0][1]
    told = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception|Mismatch|Timeout)\b", line)]
    if backend == "unisono" and fails_over_gloo(name):
        return SKIPPED, "fails over gloo, too"
    return FAILED, (told or text.strip().splitlines())[-1]


def fails_over_gloo(name: str) -> bool:
    command = [sys.executable, __file__, "--backend", "gloo", "--only", f"^{name}$"]
    environ = {key: value for key, value in os.environ.items() if key not in ("UNISONO_REPLACE_GLOO", "TEMP_DIR")}
    return subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=False).returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression for the names of tests")
    parser.add_argument("--backend", default="unisono", choices=("unisono", "gloo"))
    parser.add_argument("--list", metavar="FILE", help="write a line for each test there: outcome, name, reason")
    options = parser.parse_args()
    if options.backend == "unisono" and "UNISONO_REPLACE_GLOO" not in os.environ:
        # torch looks when it is imported.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"UNISONO_REPLACE_GLOO": "1"})
    names = unittest.defaultTestLoader.getTestCaseNames(TorchOwnTests)
    chosen = [name for name in names if re.search(options.only, name) and not _GPU.search(name)]
    print(
        f"{len(chosen)} of {len(names)} tests ({len(names) - len(chosen)} are for GPUs, or not asked for)", flush=True
    )
    totals: Counter[str] = Counter()
    with open(options.list or os.devnull, "w") as listed:
        for name in chosen:
            outcome, why = run_one(name, options.backend)
            totals[outcome] += 1
            print(outcome, name, why, sep="\t", file=listed, flush=True)
            if why:
                print(f"{outcome:15} {name}: {why[:160]}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(totals.items())))
    return int(bool(totals[FAILED]))


if __name__ == "__main__":
    sys.exit(main())
