"""torch's own tests of collectives and of DDP, run over the backend "unisono": what passes, and what does not apply.

    python benchmarks/torch_own_tests.py                     # all that need no GPU, about half an hour on 2 cores
    python benchmarks/torch_own_tests.py --only all_reduce   # those whose name holds a word
    python benchmarks/torch_own_tests.py --backend gloo      # the same tests over gloo, to compare with

torch ships these tests with its package (`torch.testing._internal.distributed.distributed_test`), written for gloo,
NCCL and MPI. unisono stands in for gloo here, as with `unisono launch --replace-gloo`, so that those for gloo apply.
Prints a line for each test that fails or does not apply, and the totals; the exit code is 1 if a test fails.

Limits: needs the package expecttest. Events of the profiler are not compared. Each test starts 2 ranks. Tests that
torch skips without GPUs are counted as "does not apply".
"""

import argparse
import os
import re
import sys
import tempfile
import unittest
from collections import Counter
from importlib.util import find_spec

_GPU = re.compile(r"gpu|cuda|nccl|multigpu|sync_batch_?norm|SyncBatchNorm", re.IGNORECASE)

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="unisono-torch-tests-"))

if find_spec("expecttest") is None:
    sys.exit("torch_own_tests.py: torch's tests need the package expecttest\nHINT: pip install expecttest")

# After the variables, which it reads when it is imported; ranks import this file anew.
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


class TorchOwnTests(TestDistBackend, DistributedTest._DistTestBase):
    """Named here so that the ranks, which are spawned, find it."""

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def call_dist_op(self, *arguments: object, **options: object) -> object:
        """As torch's, without a look at the profiler's events: those named after gloo are gloo's own."""
        return super().call_dist_op(*arguments, **options | {"expect_event": False})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a word in the names of tests")
    parser.add_argument("--backend", default="unisono", choices=("unisono", "gloo"))
    options = parser.parse_args()
    if options.backend == "unisono" and "UNISONO_REPLACE_GLOO" not in os.environ:
        # torch looks when it is imported.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"UNISONO_REPLACE_GLOO": "1"})
    names = unittest.defaultTestLoader.getTestCaseNames(TorchOwnTests)
    chosen = [name for name in names if options.only in name and not _GPU.search(name)]
    print(
        f"{len(chosen)} of {len(names)} tests ({len(names) - len(chosen)} are for GPUs, or not asked for)", flush=True
    )
    totals: Counter[str] = Counter()
    for name in chosen:
        result = unittest.TestResult()
        TorchOwnTests(name).run(result)
        if result.failures or result.errors:
            _, text = (result.failures + result.errors)[0]
            told = [line for line in text.splitlines() if re.match(r"\w*(Error|Exception|Mismatch|Timeout)\b", line)]
            outcome, why = "failed", (told or text.strip().splitlines())[-1]
        elif result.skipped:
            outcome, why = "does not apply", result.skipped[0][1]
        else:
            outcome, why = "passed", ""
        totals[outcome] += 1
        if why:
            print(f"{outcome:15} {name}: {why[:160]}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(totals.items())))
    return int(bool(totals["failed"]))


if __name__ == "__main__":
    sys.exit(main())
