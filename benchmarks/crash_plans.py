"""Which fault comes next, for `crash_points.py`: lines that were not hit yet first, then other times at those lines.

The one idea: every run tells what its processes executed after its last fault (`Outcome.after`). That is where the next
fault of a longer plan can strike. So plans grow from runs that were made: nothing needs to be known of the code.

    plans = Plans(random.Random(1)); plans.learn("", Trial("sync"), outcome); kind, trial = plans.draw()
"""

import random
from collections import Counter, defaultdict
from typing import NamedTuple, final

from crash_jobs import DEATH, HALT, HALTING, JOBS, REPLACEMENT, RESUMED, SECOND, SUPERVISOR, WRITER
from crash_tracer import KILL, Fault
from crash_trials import Outcome, Trial

MOST_SOURCES = 60
"""Runs of each kind whose lines are remembered."""


class _Place(NamedTuple):
    """Where a fault can strike: after those of a plan, at a line that was executed so often by a process."""

    plan: Trial
    role: str
    life: int
    count: int


@final
class Plans:
    """Drawn in an order that the seed decides, and what was found in the runs before."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._places: dict[tuple[str, str], dict[tuple[str, int], list[_Place]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._uses: Counter[tuple[str, str, str, int]] = Counter()
        self._drawn: Counter[tuple[str, str]] = Counter()
        self._sources: Counter[tuple[str, str]] = Counter()
        self._known: set[str] = set()

    def learn(self, kind: str, trial: Trial, outcome: Outcome) -> None:
        """What can follow this trial; its kind is that of its last fault, empty if it had none."""
        at, number, job = (trial.job, kind), len(trial.faults), JOBS[trial.job]
        if outcome.fired != number or number >= job.most_faults or self._sources[at] >= MOST_SOURCES:
            return
        self._sources[at] += 1
        for (role, life), lines in outcome.after.items():
            for follower in _followers(kind, trial, role, life):
                if follower in job.kinds:
                    places = self._places[trial.job, follower]
                    for line, count in lines.items():
                        places[role, line].append(_Place(trial, role, life, count))

    def draw(self) -> tuple[str, Trial] | None:
        """The kind and the plan of the next trial; None if there is none that was not drawn before."""
        while open_ := [at for at, places in self._places.items() if places]:
            # By chance, so that few points are not always of the same jobs.
            job, kind = min(open_, key=lambda at: (self._drawn[at] + self._rng.random()) / JOBS[at[0]].kinds[at[1]])
            if (trial := self._draw(job, kind)) is not None:
                self._drawn[job, kind] += 1
                return kind, trial
        return None

    def _draw(self, job: str, kind: str) -> Trial | None:
        """None: the line that it came to has no point left, and is forgotten."""
        places = self._places[job, kind]
        role, line = min(places, key=lambda key: (self._uses[job, kind, *key], self._rng.random()))
        self._uses[job, kind, role, line] += 1
        found = places[role, line]
        for _ in range(8):
            place = self._rng.choice(found)
            if (trial := self._at(place, line, kind, self._rng.randint(1, place.count))) is not None:
                return trial
        for place in found:  # few are left
            for number in range(1, place.count + 1):
                if (trial := self._at(place, line, kind, number)) is not None:
                    return trial
        del places[role, line]
        return None

    def _at(self, place: _Place, line: int, kind: str, number: int) -> Trial | None:
        act = self._rng.choice(("term", "int")) if kind == HALT else KILL
        trial = Trial(place.plan.job, (*place.plan.faults, Fault(place.role, place.life, line, number, act)))
        if str(trial) in self._known:
            return None
        self._known.add(str(trial))
        return trial


def _followers(kind: str, trial: Trial, role: str, life: int) -> list[str]:
    """The kinds of faults that can strike this process after a trial."""
    rank = role not in ("s", "w")
    if not kind:
        return [DEATH, HALT] if rank else [WRITER] if role == "w" else [SUPERVISOR]
    if not rank:
        return []
    if kind in (DEATH, SECOND, REPLACEMENT):
        lives = 1 + sum(fault.role == role for fault in trial.faults)
        return [] if life != lives - 1 else [REPLACEMENT] if life else [SECOND]
    if kind == HALT:
        return [RESUMED] if life else [HALTING]
    return [RESUMED] if kind == SUPERVISOR else []
