"""Placement refuses what cannot be, and `check_world` notices that MPI formed another world than the launcher said.

pytest tests/launch/test_placement.py
"""

from dataclasses import FrozenInstanceError, replace

import pytest

from unisono.environment.placement import Placement, check_world
from unisono.errors import Contradiction, UserError

GOOD = Placement(rank=3, size=4, local_rank=1, local_size=2, node=1, nodes=2, address="n1:29500", source="torchrun")


def test_alone_is_a_whole_world_of_one() -> None:
    alone = Placement.alone()
    assert (alone.rank, alone.size, alone.local_rank, alone.local_size, alone.node, alone.nodes) == (0, 1, 0, 1, 0, 1)
    assert (alone.address, alone.source) == (None, "alone")


def test_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        GOOD.rank = 0  # type: ignore[misc]


def test_what_the_launcher_does_not_say_is_none() -> None:
    unknown = replace(GOOD, local_rank=None, local_size=None, node=None, nodes=None, address=None)
    assert unknown.local_size is None
    assert replace(GOOD, local_size=None).local_rank == 1


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
    ],
)
def test_refuses_what_is_out_of_range(changes: dict[str, int | None], found: str, fix: str) -> None:
    with pytest.raises(UserError) as caught:
        replace(GOOD, **changes)  # type: ignore[arg-type]
    assert found in str(caught.value)
    assert fix in str(caught.value)


@pytest.mark.parametrize(("name", "part"), [("local_size", 5), ("nodes", 5)])
def test_refuses_a_part_larger_than_the_world(name: str, part: int) -> None:
    with pytest.raises(Contradiction) as caught:
        replace(GOOD, **{name: part})  # type: ignore[arg-type]
    assert f"{name}=5" in str(caught.value)
    assert "size=4" in str(caught.value)
    assert "HINT:" in str(caught.value)


def test_one_world_passes() -> None:
    check_world(GOOD, 4)
    check_world(Placement.alone(), 1)


@pytest.mark.parametrize(
    ("source", "message", "fix"),
    [
        ("SLURM", "SLURM says 4 tasks, MPI says a world of 1", "Open MPI needs `srun --mpi=pmix`"),
        ("PMI", "PMI says 4 ranks, MPI says a world of 1", "MPICH needs `srun --mpi=pmi2`"),
        ("PMIx", "PMIx says 4 ranks, MPI says a world of 1", "or start with mpirun"),
        ("Open MPI", "Open MPI says 4 ranks, MPI says a world of 1", "the MPI library which mpi4py loads"),
        ("torchrun", "torchrun says 4 ranks, MPI says a world of 1", "torchrun starts no MPI"),
    ],
)
def test_two_worlds_are_a_contradiction(source: str, message: str, fix: str) -> None:
    with pytest.raises(Contradiction) as caught:
        check_world(replace(GOOD, source=source), 1)
    first, hint = str(caught.value).split("\nHINT: ")
    assert first == message
    assert fix in hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("library", "flag"), [("Open MPI", "pmix"), ("MPICH", "pmi2")])
@pytest.mark.parametrize("source", ["SLURM", "PMI", "PMIx"])
def test_the_one_flag_is_named_that_this_mpi_needs(source: str, library: str, flag: str) -> None:
    with pytest.raises(Contradiction) as caught:
        check_world(replace(GOOD, source=source), 1, library)
    hint = str(caught.value).split("\nHINT: ")[1]
    assert hint == f"this MPI is {library}: start it with `srun --mpi={flag}`, or with mpirun"


def test_mpi_may_be_the_larger_world() -> None:
    with pytest.raises(Contradiction, match="alone says 1 rank, MPI says a world of 4"):
        check_world(Placement.alone(), 4)
