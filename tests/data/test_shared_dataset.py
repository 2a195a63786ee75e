"""Worlds of 1 to 3 ranks share one copy; layouts of several nodes are played by giving ranks different node keys."""

from pathlib import Path

import numpy as np
import pytest

import unisono
from unisono.comm.topology import shared_machine
from unisono.data.dataset import ARRAYS, DataOptions
from unisono.data.shared_dataset import load_once, share
from unisono.data.sources import load
from unisono.errors import RankFailed, UserError

SPEC = "synthetic:classes=3,rows=1001,features=7,test_rows=13"


def digest(dataset):
    facts = [dataset.name, dataset.classes, list(dataset.shape), dataset.normalisation.plain, dataset.vocabulary]
    facts.append(dataset.tokens)
    return facts + [array.tobytes().hex() for array in dataset.arrays().values()]


def mapped():
    """How many mappings of shared memory this process has."""
    return sum("memfd:unisono" in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("spec", [SPEC, "synthetic-text:characters=500,context=7"])
def test_every_rank_sees_what_the_first_one_loaded(size, spec):
    options = DataOptions(normalise="standard" if spec == SPEC else "auto")

    def work(world):
        dataset = share(world.comm, load(spec, options) if world.rank == 0 else None)
        for name in ARRAYS:
            assert not getattr(dataset, name).flags.writeable
            assert getattr(dataset, name).flags.c_contiguous
        return digest(dataset)

    assert unisono.run(work, size) == [digest(load(spec, options))] * size


@pytest.mark.parametrize("size", [1, 2, 3])
def test_only_the_first_rank_of_a_node_loads(size):
    def work(world):
        calls = []

        def loader():
            calls.append(world.rank)
            return load("digits")

        return [digest(load_once(world.comm, loader)), len(calls)]

    assert unisono.run(work, size) == [[digest(load("digits")), int(rank == 0)] for rank in range(size)]


def test_there_is_one_copy_and_it_goes_with_its_last_view():
    def work(world):
        before = mapped()
        dataset = load_once(world.comm, lambda: load(SPEC))
        during = mapped()
        # Written behind the read-only views: seen by the others if the memory is one.
        if world.rank == 0:
            base = dataset.train_x
            while isinstance(base.base, np.ndarray):
                base = base.base
            base[...] = 5
        world.comm.barrier()
        seen = bool((dataset.train_x == 5).all())
        base = None
        del dataset
        return [during - before, mapped() - before, seen]

    assert unisono.run(work, 3) == [[1, 0, True]] * 3


def play_nodes(world, layout):
    shared_machine.node_key = lambda: bytes([layout[world.rank]]) * 16


@pytest.mark.parametrize("layout", [[0, 0, 1], [0, 1, 0], [0, 1, 2]])
def test_every_node_has_a_copy_of_its_own(layout):
    def work(world):
        play_nodes(world, layout)
        spec = f"synthetic:regression,rows=20,seed={layout[world.rank]}"
        return digest(load_once(world.comm, lambda: load(spec)))

    expected = [digest(load(f"synthetic:regression,rows=20,seed={number}")) for number in layout]
    assert unisono.run(work, 3) == expected


def failing(world, load, layout=(0, 0, 0)):
    """What each rank raised, and whether the communicator still works."""
    play_nodes(world, layout)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        load_once(world.comm, load)
    world.comm.barrier()
    return [type(caught.value).__name__, str(caught.value)]


def test_a_failure_on_the_loading_rank_is_told_to_everyone():
    def work(world):
        return failing(world, lambda: load("mnits"))

    first, *others = unisono.run(work, 3, timeout_s=20)
    assert first[0] == "UserError"
    assert first[1].startswith("unknown data 'mnits'")
    assert others == [["UserError", f"rank 0: {first[1]}"]] * 2


def test_a_bug_on_the_loading_rank_is_told_to_everyone():
    def broken():
        raise KeyError("ä" * 5000)

    def work(world):
        return failing(world, broken)

    first, *others = unisono.run(work, 2, timeout_s=20)
    assert first[0] == "KeyError"
    assert others[0][0] == "UnisonoError"
    assert others[0][1].startswith("rank 0: KeyError: 'ää")


def test_a_failure_on_another_node_is_told_to_everyone():
    def work(world):
        return failing(world, lambda: load("digits" if world.rank == 0 else "mnits"), [0, 0, 1])

    found = unisono.run(work, 3, timeout_s=20)
    assert [kind for kind, _ in found] == ["UserError"] * 3
    assert found[0][1] == found[1][1] == f"rank 2: {found[2][1]}"


def test_too_little_memory_is_told_to_everyone():
    def work(world):
        from unisono.arena.memory import segment

        segment.available_bytes = lambda: 1000
        return failing(world, lambda: load(SPEC), [0, 0, 1])

    found = unisono.run(work, 3, timeout_s=20)
    assert [kind for kind, _ in found] == ["UserError"] * 3
    assert all("of shared memory are needed" in message for _, message in found)


def test_a_rank_that_should_have_loaded_is_named():
    def work(world):
        return digest(share(world.comm, None))

    with pytest.raises(RankFailed, match="rank 0 is the first of its node and gave no dataset") as caught:
        unisono.run(work, 2, timeout_s=20)
    assert caught.value.exit_code == UserError.exit_code
