"""`unisono train`, in which rank 1 alone fails in the middle of an epoch; for `test_failing_rank.py`, under mpirun.

mpirun -n 3 -x FAILURE=UserError python failing_rank.py train --strategy async
"""

import os
import sys
from functools import partial
from typing import Any

from unisono.cli.main import main
from unisono.data.loader import Loader
from unisono.environment.os_environ import detect
from unisono.errors import UserError

FAILS_AT = 5
"""Loads."""


def _raise(kind: type[Exception], words: str) -> None:
    raise kind(words)


FAILURES = {
    "OverflowError": partial(_raise, OverflowError),
    "UserError": partial(_raise, UserError),
    "exit": lambda words: sys.exit(0),
}


def main_of_a_rank() -> None:
    groups, loads = Loader.groups, [0]

    def failing(*given: Any) -> Any:
        loads[0] += 1
        if loads[0] == FAILS_AT:
            FAILURES[os.environ.get("FAILURE", "OverflowError")]("the fifth batch is no good")
        return groups(*given)

    if detect().rank == 1:
        Loader.groups = failing
    main()


if __name__ == "__main__":
    main_of_a_rank()
