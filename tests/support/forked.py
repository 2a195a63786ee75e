"""Tests that run in a forked process each: `pytestmark = pytest.mark.forked`.

For tests that use torch and fork ranks, or leave threads behind: threads of torch in the process of pytest would forbid
every later fork. Fixtures are made in pytest's process.
"""

import sys
import traceback
from collections.abc import Callable

import pytest

import unisono


def run_forked(test: Callable[[], object]) -> None:
    """Fails or skips as the test does."""

    def work(world: unisono.World) -> tuple[str, str]:
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
        try:
            test()
        except pytest.skip.Exception as skipped:
            return "skipped", str(skipped)
        except BaseException:  # what pytest raises where nothing was raised is not an Exception
            return "failed", traceback.format_exc()
        return "passed", ""

    ((outcome, text),) = unisono.run(work, 1, start="fork")
    if outcome == "skipped":
        pytest.skip(text)
    if outcome == "failed":
        pytest.fail(text, pytrace=False)
