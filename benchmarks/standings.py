"""The tables of `training.py`: how fast everybody was, and whether the ratios aimed for were reached.

    show_rates({"a": [2.0, 4.0], "b": [1.0, 1.0]}, notes={}, absent=[]); judge(rates, Aim("a", "b", 2.5))

The spread is the middle half (lower to upper quartile) of the rounds; that of a ratio is taken over the ratios of
single rounds, in which both contenders met the same disturbances.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import final

from contenders import Rates, middle_half, ratio

_WIDTH = 32


@final
@dataclass(frozen=True)
class Aim:
    """`above` is to be at least `times` as fast as `below`; with `at_most`, at most. 0: no aim, only to know."""

    above: str
    below: str
    times: float = 0.0
    at_most: bool = False


def show_rates(rates: Rates, notes: Mapping[str, str], absent: Iterable[str]) -> None:
    """A line a contender; notes and those that are absent, by name."""
    print(f"{'contender':<{_WIDTH}} {'samples/s':>11}   middle half")
    for name, values in rates.items():
        low, high = middle_half(values)
        note = f"   ({notes[name]})" if notes.get(name) else ""
        print(f"{name:<{_WIDTH}} {median(values):>11,.0f}   {low:,.0f} - {high:,.0f}{note}")
    for name in absent:
        print(f"{name:<{_WIDTH}} {'-':>11}   not installed")


def judge(rates: Rates, *aims: Aim) -> None:
    """A line an aim: the ratio, its spread, what was aimed for, and whether it was reached."""
    print(f"{'ratio':<{2 * _WIDTH}} {'median':>8}   {'middle half':<13}   {'aim':<8}   reached")
    for aim in aims:
        pair = f"{aim.above} / {aim.below}"
        wanted = f"{'<=' if aim.at_most else '>='} {aim.times:g}x" if aim.times else "-"
        if not {aim.above, aim.below} <= rates.keys():
            print(f"{pair:<{2 * _WIDTH}} {'-':>8}   {'':<13}   {wanted:<8}   not installed")
            continue
        found, (low, high) = ratio(rates, aim.above, aim.below)
        reached = found <= aim.times if aim.at_most else found >= aim.times
        verdict = ("yes" if reached else "no") if aim.times else "-"
        spread = f"{low:.2f} - {high:.2f}"
        print(f"{pair:<{2 * _WIDTH}} {found:>7.2f}x   {spread:<13}   {wanted:<8}   {verdict}", flush=True)
