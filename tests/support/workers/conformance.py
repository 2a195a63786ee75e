"""One rank of a conformance world: runs every check, rank 0 prints which ones failed where.

mpirun -n 3 python conformance.py mpi          torchrun --nproc-per-node=3 conformance.py gloo
"""

import json
import sys
import traceback

import numpy as np
import pytest

from support.comm.conformance_checks import CHECKS
from unisono import join
from unisono.comm.base import Communicator

TIMEOUT_S = 30.0
MARK = "CONFORMANCE "


def run_checks(comm: Communicator) -> dict[str, str]:
    """name -> '' or what went wrong on which rank; stops at the first failure, for ranks are out of step then."""
    outcome: dict[str, str] = {}
    for name, check in CHECKS.items():
        failure = ""
        try:
            check(comm)
        except (Exception, pytest.fail.Exception):  # the latter: nothing was raised where something should be
            failure = f"rank {comm.rank} of {comm.size}: {traceback.format_exc()}"
            print(failure, file=sys.stderr, flush=True)  # the others may be elsewhere, and not hear of it below
        told = np.zeros(4000, np.uint8)
        text = failure.encode()[-4000:]
        told[: len(text)] = np.frombuffer(text, np.uint8)
        rows = comm.all_gather(told)
        outcome[name] = "\n".join(filter(None, (row.tobytes().rstrip(b"\0").decode(errors="replace") for row in rows)))
        if outcome[name]:
            break
    return outcome


if __name__ == "__main__":
    with join(sys.argv[1], TIMEOUT_S) as world:
        outcome = run_checks(world.comm)
        if world.rank == 0:
            print(MARK + json.dumps(outcome), flush=True)
