"""One rank among others, as other launchers start it: how all of them leave. Ranks are forked here."""

import io
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.arena.sync.waiting import wait_until
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.placement import Placement
from unisono.errors import RESUME_ME
from unisono.recipe import Recipe
from unisono.runs.course import Course
from unisono.runs.failures import Halted
from unisono.runs.hosts import launched as module
from unisono.training.job import Job
from unisono.world import World

LATE_S = 0.3
"""How much later the first rank speaks than others would leave that do not wait for it."""

pytestmark = pytest.mark.usefixtures("no_price")


class Slow(io.StringIO):
    """Notes in a file whether somebody has left before it is written to."""

    def __init__(self, left: Path, outrun: Path) -> None:
        super().__init__()
        self._left, self._outrun = left, outrun

    def write(self, text: str) -> int:
        if wait_until(self._left.exists, LATE_S):
            self._outrun.touch()
        return super().write(text)


def test_nobody_leaves_a_run_that_was_asked_to_end_before_the_first_rank_has_said_how_to_go_on(tmp_path):
    """Launchers end everybody when the first one leaves."""
    left, outrun = tmp_path / "left", tmp_path / "outrun"
    recipe = Recipe.from_options(
        ranks=3, epochs=4, model="mlp:8", batch_size=16, out=str(tmp_path / "run"),
        data="synthetic:classes=4,rows=64,features=8,test_rows=32",
    )  # fmt: skip

    def work(world: World) -> list[Any]:
        real = Job.lr

        def lr(job: Job, step: int) -> float:
            if (world.rank, step) == (1, 5):
                os.kill(os.getpid(), signal.SIGUSR1)
            return real(job, step)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "connect", lambda *given: nullcontext(world.comm))
            patch.setattr(Job, "lr", lr)
            said = Slow(left, outrun)
            if world.rank == 0:
                patch.setattr(sys, "stderr", said)
            place = Placement(world.rank, 3, world.rank, 3, 0, 1, None, "a test")
            with pytest.raises(Halted) as ended:
                Course(recipe, module.LaunchedHost(place, RendezvousOptions())).run()
            if world.rank:
                left.touch()
            return [ended.value.exit_code, said.getvalue(), ended.value.shown]

    (first, told, _), *_ = found = unisono.run(work, 3, timeout_s=60.0)
    assert first == RESUME_ME
    assert [[code, said] for code, _, said in found] == [[RESUME_ME, True]] * 3
    assert f"HINT: go on with unisono train --resume {recipe.output.directory}" in told
    assert left.exists()
    assert not outrun.exists()
