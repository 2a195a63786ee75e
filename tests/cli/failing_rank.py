"""`unisono train`, in which rank 1 alone fails in the middle of an epoch; for `test_failing_rank.py`, under mpirun.

mpirun -n 3 python failing_rank.py train --strategy async
"""

from typing import Any

from unisono.cli.main import main
from unisono.data.loader import Loader
from unisono.launch.environments import detect

FAILS_AT = 5
"""Loads."""


def main_of_a_rank() -> None:
    groups, loads = Loader.groups, [0]

    def failing(*given: Any) -> Any:
        loads[0] += 1
        if loads[0] == FAILS_AT:
            raise OverflowError("the fifth batch is no good")
        return groups(*given)

    if detect().rank == 1:
        Loader.groups = failing
    main()


if __name__ == "__main__":
    main_of_a_rank()
