import handover
import pytest

import unisono
from unisono.arena.memory.fence import find_fence
from unisono.arena.sync.barrier import Barrier
from unisono.errors import UserError


def ranks_of(size: int) -> tuple[list[int], list[Barrier]]:
    """The words of a barrier, and each rank's side of it."""
    words = [0] * Barrier.words_needed(size)
    return words, [Barrier(words, rank, size, crowded=False) for rank in range(size)]


def test_who_does_not_come_is_named():
    _, barriers = ranks_of(3)
    with pytest.raises(TimeoutError):
        barriers[1].wait(timeout_s=0.01)
    assert barriers[1].missing() == [0, 2]
    with pytest.raises(TimeoutError):
        barriers[2].wait(timeout_s=0.01)
    assert barriers[1].missing() == [0]


class Clock:
    """Time that passes by being looked at."""

    now = 100.0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_one_deadline_for_all_that_are_awaited(monkeypatch):
    """Rank 1 comes late, but in time; rank 2 never. What was spent on waiting for rank 1 is not granted again."""
    clock = Clock()
    monkeypatch.setattr("unisono.arena.sync.barrier.time", clock)
    monkeypatch.setattr("unisono.arena.sync.waiting.time", clock)
    words = [0] * Barrier.words_needed(3)

    def meanwhile() -> None:
        if clock.now > 108:
            words[16] = 1

    barrier = Barrier(words, 0, 3, crowded=True, meanwhile=meanwhile)
    with pytest.raises(TimeoutError):
        barrier.wait(timeout_s=10.0)
    assert barrier.missing() == [2]
    assert 110 <= clock.now < 112


def test_stamps_that_differ_are_noticed_by_both():
    words, (first, second) = ranks_of(2)
    # Rank 1 has arrived at meeting 1 (odd: stamps in word 2) with stamp 5.
    words[16 + 2], words[16] = 5, 1
    assert first.wait(1.0, stamp=4) is False
    assert first.stamps() == [4, 5]
    assert second.wait(1.0, stamp=5) is False


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_second_of_hand_overs_each_checked(ranks):
    counts = unisono.run(lambda world: handover.stress(world, 1.0), ranks)
    assert all(count["meetings"] for count in counts)  # how many depends on who else is on the cores


def test_the_stress_finds_a_rank_that_arrives_before_it_has_written():
    with pytest.raises(unisono.RankFailed, match=r"round .* read"):
        unisono.run(lambda world: handover.stress(world, 20.0, broken=True), 2)


def test_a_processor_without_total_store_order_needs_libatomic():
    assert find_fence("x86_64") is None
    with pytest.raises(UserError, match=r"shared memory on aarch64 needs a memory fence.*\nHINT: install"):
        find_fence("aarch64", "libnothing.so.1")


def test_the_fence_of_libatomic_can_be_called():
    try:
        fence = find_fence("aarch64")
    except UserError as error:
        pytest.skip(str(error))
    assert fence is not None
    fence()


def test_the_fence_stands_between_data_and_flag_on_both_sides(monkeypatch):
    (words, (first, second)), seen = ranks_of(2), []
    monkeypatch.setattr("unisono.arena.sync.barrier.fence", lambda: seen.append((words[0], words[16])))
    words[16], words[16 + 2] = 1, 7  # rank 1 is there already, with its stamp
    first.wait(1.0, stamp=7)
    # Once before the own number is stored, once after the other's was seen.
    assert seen == [(0, 1), (1, 1)]
    second.wait(1.0, stamp=7)


@pytest.mark.parametrize(("numbers", "reached", "resume"), [((4, 4, 4), 4, 4), ((5, 4, 4), 4, 6), ((7, 4, 7), 4, 8)])
def test_where_the_others_go_on_when_one_is_lost(numbers, reached, resume):
    """After every arrival, and with the parity of the last meeting that took place, whose stamps are still read."""
    words, ranks = ranks_of(3)
    for rank, number in zip(ranks, numbers, strict=True):
        words[rank._mine], rank._number = number, number
    Barrier.decide(words, (0, 1, 2), 3)
    assert [rank.took_place for rank in ranks] == [number <= reached for number in numbers]
    for rank in (ranks[0], ranks[2]):
        rank.resume((0, 2))
        assert (rank._number, rank._others) == (resume, [line for line in (0, 2 * 16) if line != rank._mine])
