"""`--trust`: the option, and the question that is asked on a terminal instead.

    confirm_trust(trust, recipe)  # a `UserError` unless all code of the recipe may run; see `unisono/trust.py`

The one idea: a question needs a user who can answer. It is asked only if standard input and standard error are
terminals; elsewhere, as in batch jobs, code without trust is an error. No answer, Ctrl-C included, means no.
"""

import os
import sys
from typing import Annotated

from cyclopts import Group, Parameter

from unisono.recipe import Recipe
from unisono.safe_print import print
from unisono.trust import QUESTIONABLE, Trust, refusal

TrustOption = Annotated[
    bool,
    Parameter(
        help="Run the code that a recipe or a run names, wherever it lies. Without it, code outside the working "
        "directory, or in the resumed run, runs only after your yes on a terminal.",
        negative="",
        show_default=False,
        group=Group("Code of others", sort_key=99),
    ),
]


def confirm_trust(trust: Trust, recipe: Recipe) -> bool:
    """Whether the user has said that all of its code may run; False: there is none that needs it. A `UserError` if the
    user has not."""
    if trust.trusted:
        return True
    untrusted = trust.untrusted(recipe)
    if untrusted and not _ask(untrusted):
        raise refusal(untrusted)
    return bool(untrusted)


def _can_answer() -> bool:
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()  # started with &, it would be stopped when it reads
    except OSError:  # a terminal that controls no processes
        return True


def _ask(untrusted: list[str]) -> bool:
    if not _can_answer():
        return False
    print("\n".join([f"unisono: {QUESTIONABLE}:", *untrusted]), file=sys.stderr)
    try:
        print("Run it? [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    except (KeyboardInterrupt, OSError, ValueError):  # of a terminal that is gone, or of bytes that are no text
        answer = ""
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")
