r"""Mistakes in a loop of a user's own: each ends, on each of 2 ranks, in a UserError with a hint.

@refused(r"world\.share was called twice")
def test_sharing_twice(world): ...
"""

import re
from collections.abc import Callable

from support.loop.loop_cases import on
from unisono.errors import UserError
from unisono.world import World

Mistake = Callable[[World], object]


def check_refused(message: str, mistake: Mistake) -> None:
    """message: a pattern of what every rank is told."""

    def work(world: World) -> str:
        try:
            mistake(world)
        except UserError as error:
            return str(error)
        return "nothing was refused"

    for told in on(2, work):
        assert re.search(message, told), told
        assert "\nHINT: " in told, told


def refused(message: str) -> Callable[[Mistake], Callable[[], None]]:
    """Makes a test of a mistake."""
    return lambda mistake: lambda: check_refused(message, mistake)
