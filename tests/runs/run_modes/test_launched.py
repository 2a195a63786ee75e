"""One rank among others, as other launchers start it: how all of them leave. Ranks are forked here."""

import io
import os
import signal
import sys
from contextlib import nullcontext
from typing import Any

import pytest

import unisono
from support.training.launched_runs import Departure
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.process_rank import Placement
from unisono.errors import RESUME_ME
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.lifecycle import RunLifecycle
from unisono.runs.run_modes import launched as module
from unisono.training.job import Job
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")


class Slow(io.StringIO):
    """Somebody may have left before it is written to."""

    def __init__(self, departure: Departure) -> None:
        super().__init__()
        self._departure = departure

    def write(self, text: str) -> int:
        self._departure.linger()
        return super().write(text)


def test_nobody_leaves_a_run_that_was_asked_to_end_before_the_first_rank_has_said_how_to_go_on(tmp_path):
    """Launchers end everybody when the first one leaves."""
    departure = Departure(tmp_path)
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
            said = Slow(departure)
            if world.rank == 0:
                patch.setattr(sys, "stderr", said)
            place = Placement(world.rank, 3, world.rank, 3, 0, 1, None, "a test")
            with pytest.raises(Halted) as ended:
                RunLifecycle(recipe, module.LaunchedMode(place, RendezvousOptions())).run()
            if world.rank:
                departure.leave()
            return [ended.value.exit_code, said.getvalue(), ended.value.shown]

    (first, told, _), *_ = found = unisono.run(work, 3, timeout_s=60.0)
    assert first == RESUME_ME
    assert [[code, said] for code, _, said in found] == [[RESUME_ME, True]] * 3
    assert f"HINT: go on with unisono train --resume {recipe.output.directory}" in told
    departure.check()
