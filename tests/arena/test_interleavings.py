"""Supervisor, members, strategy and loop, in orders that are chosen: every run ends as a quiet one does.

A failure prints its schedule: `python benchmarks/interleavings.py --setting "2 ranks" --replay "{62: 'kill'}"`.
"""

import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, islice
from unittest.mock import patch

import pytest

from support.arena.mutants import BUFFERS_NOT_KEPT, MUTANTS, Mutant, contributors_of_two_views, number_first, row_once
from support.arena.paused_memory import PausedMemory
from support.arena.scheduler import KILL, Action, Scheduler
from support.arena.schedules import SETTINGS, Bounds, every, some
from support.arena.supervised_run import Found, Setting
from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import COMMIT, READY, View

setting_of = cache(lambda name: SETTINGS[name]())


def another_seed() -> int:
    """A failure shows it."""
    chosen = random.SystemRandom().randrange(10**6)
    print(f"seed {chosen}")
    return chosen


def check(setting: Setting, found: Found) -> None:
    assert not found.fault, setting.told(found)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize(("name", "sample"), [("2 ranks", 1.0), ("3 ranks", 0.4), ("2 machines", 0.5)])
def test_a_death_or_a_switch_at_any_point_and_some_pairs_of_them_change_nothing(name, sample, part):
    setting, deaths = setting_of(name), [0, 0, 0]
    bounds = Bounds(deaths=2, switches=2, most=2, sample=sample, part=(part, 3))
    for found in every(setting.run, bounds, random.Random(another_seed())):
        check(setting, found)
        deaths[list(found.taken.values()).count(KILL)] += 1
    assert deaths[1] > 60, "a third of all points of ranks, at least"
    assert deaths[2]


@pytest.mark.parametrize("name", SETTINGS)
def test_orders_at_random_change_nothing(name):
    setting = setting_of(name)
    for found in islice(some(setting, random.Random(another_seed()), Bounds(deaths=3, halts=1)), 200):
        check(setting, found)


@pytest.mark.parametrize("name", ["2 ranks", "2 machines"])
def test_a_signal_at_any_word_ends_all_after_the_same_round(name):
    setting, rounds = setting_of(name), set()
    for found in every(setting.run, Bounds(halts=1)):
        check(setting, found)
        rounds.add(found.halted)
    assert rounds == {None, 1, 2, 3}, "asked in the last round, they come to the end"


def test_a_schedule_makes_the_same_run_again():
    setting = setting_of("3 ranks")
    for found in islice(some(setting, random.Random(3), Bounds(deaths=2, halts=1)), 30):
        assert setting.run(found.taken) == found


# --- faults that are put in ------------------------------------------------------------------------------------------


def first_fault(name: str, fault: Mutant) -> Found | None:
    setting = setting_of(name)
    deaths, orders = every(setting.run, Bounds(deaths=1)), some(setting, random.Random(1), Bounds(deaths=2))
    with fault(setting):
        runs = chain(islice(orders, 150), deaths, islice(orders, 999))
        return next((found for found in runs if found.fault), None)


@pytest.mark.parametrize("fault", MUTANTS)
def test_every_fault_that_is_put_into_the_real_code_is_found(fault):
    name = "2 ranks" if "spare" in fault else "3 ranks"
    found = first_fault(name, MUTANTS[fault])
    assert found is not None
    assert setting_of(name).run(found.taken).fault == "", "it is the fault's, not that of the schedule"


def test_buffers_that_were_not_kept_are_missed_when_nobody_is_left():
    setting = setting_of("2 ranks")
    with BUFFERS_NOT_KEPT(setting):
        update = [number for number, point in enumerate(setting.run({}).points) if point.what.startswith("writes (")]
        pairs = ((first, second) for first in update for second in range(first + 1, first + 30))
        runs = (setting.run({first: KILL, second: KILL}) for first, second in pairs)
        assert "given up after round 0, and the buffers" in next(found.fault for found in runs if found.fault)


def test_a_exchanger_that_does_not_look_whether_somebody_joined_is_found():
    """It is delayed when it has read who is a member, and is about to look at their flags."""
    setting = setting_of("2 machines")
    flags = [protocol.line(slot) for slot in range(setting.ranks)]

    def delays(death: int, found: Found) -> Iterator[Found]:
        for number, point in enumerate(found.points[death:], death):
            if point.actor == "the courier" and point.at in flags:
                for other in range(1, point.others + 1):
                    yield setting.run({death: KILL, number: other})

    with patch.object(protocol, "contributors_of", contributors_of_two_views):
        points = setting.run({}).points
        deaths = [number for number, point in enumerate(points) if point.mortal and point.what.startswith("copies")]
        runs = chain.from_iterable(delays(death, setting.run({death: KILL})) for death in deaths)
        assert "the courier failed" in next(found.fault for found in runs if found.fault)


# --- who reads views without being a member --------------------------------------------------------------------------


def read_views(schedule: Mapping[int, Action]) -> Found:
    """One publishes four views, which share two rows; another one reads whatever there is."""
    views = [View(number, (0, 1)[number % 2 :], number, (COMMIT, READY)[number % 3 // 2], ()) for number in range(1, 5)]
    scheduler, memory = Scheduler(lambda number, scheduler: schedule.get(number)), PausedMemory(4096)
    words = memory.words(0, protocol.words_needed(2))
    faults = []

    def read() -> None:
        while (found := protocol.current_view(words, 2)) != views[-1]:
            if found is not None and found not in views:
                faults.append(f"{found} was never published")
            scheduler.wait_until(lambda: words[0] > (0 if found is None else found.number))

    def publish() -> None:
        for view in views:
            protocol.publish(words, view, 2)

    memory.scheduler = scheduler
    scheduler.start("the reader", read)
    scheduler.start("the supervisor", publish)
    fault = scheduler.run()
    scheduler.close()
    return Found(fault or "".join(faults[:1]), scheduler.taken, scheduler.points)


def test_who_reads_views_finds_one_that_was_published():
    runs = list(every(read_views, Bounds(switches=2)))
    assert not any(found.fault for found in runs)
    assert len(runs) > 500


@pytest.mark.parametrize("fault", [("publish", number_first), ("current_view", row_once)], ids=lambda fault: fault[0])
def test_a_reader_of_half_a_view_is_found(fault):
    with patch.object(protocol, *fault):
        assert any("was never published" in found.fault for found in every(read_views, Bounds(switches=2)))
