"""Orders of events of a supervised run: the real supervisor, members, strategy and loop, one word of memory at a time.

The one idea: the tests try every single death and every single delay, and a sample of more; this tries for as long as
you like. A run is decided by its schedule, {point: what happens there}: a fault is printed with it, to be repeated.

    python benchmarks/interleavings.py                                        # two minutes
    python benchmarks/interleavings.py --deaths 2 --switches 3 --minutes 30 --seed 7
    python benchmarks/interleavings.py --setting "2 ranks" --deaths 1 --switches 1 --all       # some ten minutes
    python benchmarks/interleavings.py --setting "2 ranks" --replay "{62: 'kill', 80: 1}"

Half of the schedules have up to so many interventions at points that are drawn; in the other half anybody may be
delayed at any point, more or less often. With --all every schedule within the bounds is tried. The exit code is 1 if a
run did not end as a quiet one does. Limits: one process, some 250 runs a second; start several, with other seeds.
"""

import argparse
import ast
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import tests_path  # noqa: F401

from support.arena.schedules import SETTINGS, Bounds, every, some, walks


def main() -> int:
    given = _given()
    wrong = 0
    for name in given.setting or list(SETTINGS):
        setting, begun, runs, points, deaths = SETTINGS[name](), time.monotonic(), 0, 0, 0
        limit_s = 60 * given.minutes / len(given.setting or SETTINGS)
        for found in _runs(setting, given):
            runs, points = runs + 1, points + len(found.points)
            deaths += sum(action == "kill" for action in found.taken.values())
            if found.fault:
                wrong += 1
                print(f"{name}: {setting.told(found)}")
                print(f'repeat it: python benchmarks/interleavings.py --setting "{name}" --replay "{found.taken}"\n')
                break
            if not given.all and time.monotonic() - begun > limit_s:
                break
        verdict = "FAULT" if found.fault else "all equal"
        print(f"{name}: {runs} runs, {points} points, {deaths} deaths, {time.monotonic() - begun:.0f} s: {verdict}")
    return int(bool(wrong))


def _runs(setting: Any, given: argparse.Namespace) -> Iterator[Any]:
    if given.replay is not None:
        yield setting.run(ast.literal_eval(given.replay))
        return
    bounds = Bounds(given.deaths, given.switches, given.halts)
    if given.all:
        yield from every(setting.run, bounds)
        return
    rng = random.Random(given.seed)
    for pair in zip(walks(setting.run, bounds, rng), some(setting, rng, bounds), strict=False):
        yield from pair


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), help="one of them; all if left out")
    for kind, default in (("deaths", 2), ("switches", 2), ("halts", 0)):
        parser.add_argument(f"--{kind}", type=int, default=default, help=f"at most so many in a schedule ({default})")
    parser.add_argument("--minutes", type=float, default=2.0, help="for all settings together (2)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--all", action="store_true", help="every schedule within the bounds, however long it takes")
    parser.add_argument("--replay", help="one schedule, as a fault prints it")
    given = parser.parse_args()
    print(f"--deaths {given.deaths} --switches {given.switches} --halts {given.halts} --seed {given.seed}")
    return given


if __name__ == "__main__":
    sys.exit(main())
