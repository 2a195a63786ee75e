"""World: what user code holds. Its rank, its size, and the communicator to the others.

def work(world):
    total = np.array([float(world.rank)])
    world.comm.all_reduce(total)
    return total[0]

unisono.run(work, ranks=4)          # starts 4 processes here
world = unisono.join()              # or: is one of those that mpirun, torchrun or srun started
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, final

from unisono.comm.base import Communicator


@final
class World:
    """The processes that train together, as one of them sees it."""

    def __init__(self, comm: Communicator, report: Callable[[Any], None] = lambda value: None) -> None:
        self.comm = comm
        self.report = report
        """Hands a value to the process that started this rank, while the rank goes on; see `unisono.run`."""

    @property
    def rank(self) -> int:
        return self.comm.rank

    @property
    def size(self) -> int:
        return self.comm.size

    def close(self) -> None:
        """Leaves the world."""
        self.comm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.comm.desert(error)
        self.close()

    def __repr__(self) -> str:
        return f"World(rank={self.rank}, size={self.size}, transport={self.comm.transport!r})"
