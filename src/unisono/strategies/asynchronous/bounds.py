"""Bounds: how stale a gradient may be, and what happens when it would be staler.

The one idea: with `wait` nobody is ever too stale, because a push that would make another worker's too stale waits for
it (stale-synchronous parallel, Ho et al., NIPS 2013); with `drop` nobody waits, and what is too stale is not applied.

>>> Bound.parse("6:drop", workers=4, usual=8), Bound.parse("", workers=4, usual=8), Bound.parse("none", 4, 8)
(Bound(most=6, drop=True), Bound(most=8, drop=False), None)
>>> may_pass(7, [3], bound=4), may_pass(6, [3], bound=4), may_pass(6, [3, 3], bound=4)
(False, True, False)
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from unisono.errors import UserError

_FORM = re.compile(r"(\d+)(?::(wait|drop))?")


@final
@dataclass(frozen=True)
class Bound:
    """At most `most` updates between pull and push."""

    most: int
    drop: bool = False

    @classmethod
    def parse(cls, text: str, workers: int, usual: int) -> "Bound | None":
        """From --max-staleness: "12", "12:wait", "12:drop", "none"; "": `usual`, waiting. None (or 0): no bound."""
        if text == "none":
            return None
        found = _FORM.fullmatch(text or str(usual))
        if found is None:
            raise UserError(
                f"--max-staleness is {text!r}", hint="give a number, with :wait or :drop after it if you like, or none"
            )
        most, drop = int(found[1]), found[2] == "drop"
        if not text and not most:
            return None
        if not drop and most < workers - 1:
            raise UserError(
                f"--max-staleness {text}: {workers} workers that start together are {workers - 1} updates apart, so "
                "they would wait for ever",
                hint=f"give {workers - 1} or more, or {most}:drop",
            )
        return cls(most, drop)


def may_pass(version: int, stamps: Iterable[int], bound: int) -> bool:
    """Whether one more update, after `version` of them, leaves time for all others, which pulled at `stamps`.

    If they push one after the other, the one that pulled first being first, none is staler than `bound`. As long as
    only pushes that pass are taken, the one that pulled first always passes: nobody waits for ever.
    """
    return all(version + 1 + turn - stamp <= bound for turn, stamp in enumerate(sorted(stamps)))
