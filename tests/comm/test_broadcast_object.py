"""What the first rank finds out is told to all, its failures too."""

from typing import Any

import pytest

import unisono
from unisono.comm.broadcast_object import broadcast_object
from unisono.errors import RankFailed, UserError
from unisono.world import World

VALUES = [None, 7, "", {"a": [1, 2.5, "x"], "b": None}, "x" * 100_000]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_value(ranks):
    def work(world: World) -> list[Any]:
        return [
            broadcast_object(world.comm, lambda value=value: value if world.rank == 0 else "mine") for value in VALUES
        ]

    assert unisono.run(work, ranks, timeout_s=30.0) == [VALUES] * ranks


def test_a_mistake_is_every_rank_s():
    def work(world: World) -> list[Any]:
        def fail() -> None:
            raise UserError("what was given", hint="what to do")

        try:
            broadcast_object(world.comm, fail)
        except UserError as error:
            return [str(error), error.exit_code, broadcast_object(world.comm, lambda: "after it")]
        return []

    assert unisono.run(work, 3, timeout_s=30.0) == [["what was given\nHINT: what to do", 2, "after it"]] * 3


def test_a_fault_of_ours_is_named_elsewhere_and_raised_there():
    def work(world: World) -> str:
        try:
            broadcast_object(world.comm, lambda: VALUES[9])
        except IndexError:
            assert world.rank == 0
            return "IndexError"
        except unisono.UnisonoError as error:
            return str(error)
        return ""

    assert unisono.run(work, 2, timeout_s=30.0) == ["IndexError", "rank 0: IndexError: list index out of range"]


def test_whoever_does_not_come_is_named():
    def work(world: World) -> None:
        if world.rank:
            broadcast_object(world.comm, lambda: 1)

    with pytest.raises(RankFailed, match="rank 0"):
        unisono.run(work, 2, timeout_s=0.5)
