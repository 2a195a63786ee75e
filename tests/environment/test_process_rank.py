"""Placement refuses what cannot be, and `check_world` notices that MPI formed another world than the launcher said."""

from dataclasses import FrozenInstanceError, replace

import pytest

from unisono.environment.process_rank import Placement, check_world
from unisono.errors import Contradiction, UserError

GOOD = Placement(rank=3, size=4, local_rank=1, local_size=2, node=1, nodes=2, address="n1:29500", source="torchrun")


def test_is_frozen_and_knows_what_the_launcher_does_not_say() -> None:
    with pytest.raises(FrozenInstanceError):
        GOOD.rank = 0  # type: ignore[misc]
    assert replace(GOOD, local_rank=None, local_size=None, node=None, nodes=None, address=None).local_size is None
    assert replace(GOOD, local_size=None).local_rank == 1
    assert Placement.alone() == Placement(0, 1, 0, 1, 0, 1, None, "alone")


@pytest.mark.parametrize(
    ("changes", "found", "fix"),
    [
        ({"rank": 4}, "torchrun says rank=4", "HINT: rank is 0 or more and below size=4"),
        ({"rank": -1}, "torchrun says rank=-1", "HINT: rank is 0 or more"),
        ({"rank": 0, "size": 0}, "torchrun says size=0", "HINT: size is 1 or more"),
        ({"local_rank": 2}, "local_rank=2", "below local_size=2"),
        ({"local_rank": -1, "local_size": None}, "local_rank=-1", "HINT: local_rank is 0 or more"),
        ({"local_size": 0}, "local_size=0", "HINT: local_size is 1 or more"),
        ({"node": 2}, "node=2", "below nodes=2"),
        ({"node": 0, "nodes": 0}, "nodes=0", "HINT: nodes is 1 or more"),
        ({"local_size": 5}, "local_size=5", "size=4"),  # a part that is larger than the world
        ({"nodes": 5}, "nodes=5", "size=4"),
    ],
)
def test_refuses_what_is_out_of_range(changes: dict[str, int | None], found: str, fix: str) -> None:
    with pytest.raises(UserError) as caught:
        replace(GOOD, **changes)  # type: ignore[arg-type]
    assert found in str(caught.value)
    assert fix in str(caught.value)
    assert "HINT: " in str(caught.value)
    assert isinstance(caught.value, Contradiction) == (fix == "size=4")


@pytest.mark.parametrize(
    ("source", "library", "message", "fix"),
    [
        ("SLURM", "", "SLURM says 4 tasks, MPI says a world of 1", "Open MPI needs `srun --mpi=pmix`"),
        ("PMI", "", "PMI says 4 ranks, MPI says a world of 1", "MPICH needs `srun --mpi=pmi2`"),
        ("PMIx", "", "PMIx says 4 ranks, MPI says a world of 1", "or start with mpirun"),
        ("Open MPI", "", "Open MPI says 4 ranks, MPI says a world of 1", "the MPI library which mpi4py loads"),
        ("torchrun", "", "torchrun says 4 ranks, MPI says a world of 1", "torchrun starts no MPI"),
        *(
            (source, library, f"{source} says 4", f"this MPI is {library}: start it with `srun --mpi={flag}`, or")
            for source in ("SLURM", "PMI", "PMIx")
            for library, flag in (("Open MPI", "pmix"), ("MPICH", "pmi2"))
        ),
    ],
)
def test_two_worlds_are_a_contradiction(source: str, library: str, message: str, fix: str) -> None:
    check_world(replace(GOOD, source=source), 4)
    with pytest.raises(Contradiction) as caught:
        check_world(replace(GOOD, source=source), 1, library)
    first, hint = str(caught.value).split("\nHINT: ")
    assert first.startswith(message)
    assert fix in hint
    assert caught.value.exit_code == 2


def test_mpi_may_be_the_larger_world() -> None:
    check_world(Placement.alone(), 1)
    with pytest.raises(Contradiction, match="alone says 1 rank, MPI says a world of 4"):
        check_world(Placement.alone(), 4)
