"""Schedules of a supervised run: all with a few interventions, one after the other, or some at random.

The one idea: a run is made anew for every schedule. Its points are where the next intervention may come: so all
schedules with so many deaths and so many switches are reached from the one without any.

    for found in every(setting.run, Bounds(deaths=1)): assert not found.fault, setting.told(found)
    for found in walks(setting.run, Bounds(deaths=2, switches=3), random.Random(7)): ...     # without end
    for found in some(setting, random.Random(7), Bounds(deaths=2)): ...                      # the same

Limits: a run takes some 3 ms and has about 300 points; each further intervention makes the number of schedules that
many times as large, so the tests try a sample of those with two.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from support.arena.scheduler import HALT, KILL, Action, Scheduler
from support.arena.supervised_run import Found, Setting
from support.arena.two_machines import two_machines

SETTINGS: dict[str, Callable[[], Setting]] = {
    "2 ranks": lambda: Setting(2, "adam", clip=1.0, snapshots="1steps"),
    "3 ranks": lambda: Setting(3, "momentum", early=True),
    "2 machines": lambda: two_machines(2),
}


@final
@dataclass(frozen=True)
class Bounds:
    """How many interventions of each kind a schedule has, at most; `most` of all kinds together."""

    deaths: int = 0
    switches: int = 0
    halts: int = 0
    most: int = 9
    sample: float | None = None
    """Of the schedules with `most` interventions: so many, on the average, for each with one fewer. None: all."""
    part: tuple[int, int] = (0, 1)
    """Of the schedules with one intervention, and what follows from them, only a part: (which, of how many)."""


def every(
    run: Callable[[Mapping[int, Action]], Found], bounds: Bounds, rng: random.Random | None = None
) -> Iterator[Found]:
    """All schedules within the bounds, those with fewer interventions first; rng: for the sample."""
    most, todo = min(bounds.most, bounds.deaths + bounds.switches + bounds.halts), [dict[int, Action]()]
    for count in range(most + 1):
        later: list[dict[int, Action]] = []
        for schedule in todo:
            found = run(schedule)
            yield found
            if count == most:
                continue
            followers = list(_followers(schedule, found, bounds))
            if count + 1 == most and bounds.sample is not None and rng is not None:
                some_of_them = int(bounds.sample + rng.random())
                followers = rng.sample(followers, min(len(followers), some_of_them))
            later += followers
        todo = later[bounds.part[0] :: bounds.part[1]] if count == 0 else later


def _followers(schedule: dict[int, Action], found: Found, bounds: Bounds) -> Iterator[dict[int, Action]]:
    """Schedules with one more intervention, after the last one."""
    actions = list(schedule.values())
    deaths, halts = bounds.deaths - actions.count(KILL), bounds.halts - actions.count(HALT)
    switches = bounds.switches - sum(isinstance(action, int) for action in actions)
    for number in range(max(schedule, default=-1) + 1, len(found.points)):
        point = found.points[number]
        if deaths and point.mortal:
            yield schedule | {number: KILL}
        if halts and point.at >= 0:
            yield schedule | {number: HALT}
        # Others do not look at a vector while its owner writes: a switch there is as good as one at the next word.
        if switches and (point.at >= 0 or point.what in ("polls", "reports")):
            for other in range(1, point.others + 1):
                yield schedule | {number: other}


def walks(run: Callable[[Mapping[int, Action]], Found], bounds: Bounds, rng: random.Random) -> Iterator[Found]:
    """Schedules drawn from those within the bounds, without end: each has one intervention more than the one before."""
    while True:
        schedule: dict[int, Action] = {}
        while True:
            found = run(schedule)
            yield found
            followers = list(_followers(schedule, found, bounds)) if len(schedule) < bounds.most else []
            if not followers:
                break
            schedule = rng.choice(followers)


def some(setting: Setting, rng: random.Random, bounds: Bounds) -> Iterator[Found]:
    """Schedules at random, without end: up to so many deaths and halts; switches at any point, rarely or often."""
    usual = len(setting.run({}).points)
    while True:
        events: dict[int, Action] = {rng.randrange(2 * usual): KILL for _ in range(rng.randint(0, bounds.deaths))}
        events |= {rng.randrange(usual): HALT for _ in range(rng.randint(0, bounds.halts))}
        often = rng.choice((0.01, 0.05, 0.2))

        def decide(number: int, scheduler: Scheduler, events=events, often=often) -> Action:
            if number in events:
                return events[number]
            return rng.randint(1, 3) if rng.random() < often else None

        yield setting.decided(decide)
