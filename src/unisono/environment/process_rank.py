"""Placement: which rank of how many this process is, and on which node, as the launcher said it.

One idea: the answer to "who am I" is a small frozen value. `variables.detect()` makes it once; nothing after that
looks at the environment again.

>>> Placement.alone().size
1

Limits: what a launcher does not say stays None (`local_rank`, `local_size`, `node`, `nodes`) and is learnt later, when
the ranks exchange the identities of their hosts. `check_world` can only compare sizes: two launchers that agree on the
size but number the ranks differently are not noticed here.
"""

from dataclasses import dataclass
from typing import Self

from unisono.errors import Contradiction, UserError

_SRUN_FLAGS = {"Open MPI": "pmix", "MPICH": "pmi2"}
_SRUN_HINT = "Open MPI needs `srun --mpi=pmix`, MPICH needs `srun --mpi=pmi2`; or start with mpirun"
_MPIRUN_HINT = "use the mpirun that belongs to the MPI library which mpi4py loads; under SLURM: " + _SRUN_HINT
_TORCHRUN_HINT = "torchrun starts no MPI: use the torch transport, or start with mpirun instead of torchrun"


@dataclass(frozen=True)
class Placement:
    """Where this process stands in the world.

    `node` is the number of this host among `nodes`. `address` is "host:port" of rank 0's rendezvous, when the launcher
    gives one. `source` names the launcher for people: "alone", "torchrun", "Open MPI", "PMI", "PMIx" or "SLURM".
    `restarts`: how often the launcher has started all ranks again: torchrun after one failed, SLURM a requeued job.
    """

    rank: int
    size: int
    local_rank: int | None
    local_size: int | None
    node: int | None
    nodes: int | None
    address: str | None
    source: str
    restarts: int = 0

    def __post_init__(self) -> None:
        pairs = (
            ("rank", self.rank, "size", self.size),
            ("local_rank", self.local_rank, "local_size", self.local_size),
            ("node", self.node, "nodes", self.nodes),
        )
        for index_name, index, count_name, count in pairs:
            if count is not None and count < 1:
                raise UserError(f"{self.source} says {count_name}={count}", hint=f"{count_name} is 1 or more")
            if index is not None and (index < 0 or (count is not None and index >= count)):
                limit = "" if count is None else f" and below {count_name}={count}"
                raise UserError(
                    f"{self.source} says {index_name}={index}",
                    hint=f"{index_name} is 0 or more{limit}; check the launch",
                )
        for name, part in (("local_size", self.local_size), ("nodes", self.nodes)):
            if part is not None and part > self.size:
                raise Contradiction(
                    f"{self.source} says {name}={part}, but also size={self.size}",
                    hint="a world has no more nodes, and no more ranks on a node, than it has ranks; check the launch",
                )

    @classmethod
    def alone(cls) -> Self:
        """The world of one process that nobody launched."""
        return cls(rank=0, size=1, local_rank=0, local_size=1, node=0, nodes=1, address=None, source="alone")


def check_world(placement: Placement, mpi_size: int, library: str = "") -> None:
    """Raises `Contradiction` if MPI's world is not the one the launcher spoke of; `library`: which MPI it is.

    A wrong `srun --mpi=...` makes MPI start N separate worlds of size 1 and end with exit code 0: nothing but this
    comparison notices.
    """
    if mpi_size == placement.size:
        return
    noun = "task" if placement.source == "SLURM" else "rank"
    plural = "" if placement.size == 1 else "s"
    hint = {"torchrun": _TORCHRUN_HINT, "Open MPI": _MPIRUN_HINT, "alone": _MPIRUN_HINT}
    flag = _SRUN_FLAGS.get(library)
    under_srun = f"this MPI is {library}: start it with `srun --mpi={flag}`, or with mpirun" if flag else _SRUN_HINT
    raise Contradiction(
        f"{placement.source} says {placement.size} {noun}{plural}, MPI says a world of {mpi_size}",
        hint=hint.get(placement.source, under_srun),
    )
