"""A rank that dies costs the shard that it was computing, and the others the rest of theirs: no more is done again."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.faults.plans import FROZEN, PULSED, Fault, kill_at
from support.faults.trials import CLOSING, SMALL, quiet, trial
from unisono.arena.membership.protocol import READY, freezing
from unisono.arena.sync.waiting import wait_until
from unisono.models.chain import Chain
from unisono.strategies.arena import gradients
from unisono.strategies.arena.gradients import GradientStep
from unisono.strategies.local.local_steps import LocalSteps
from unisono.supervise.failure_policy import Replacements

PAIR = SMALL.with_options(ranks=2, respawn=False)
SHARDS = 2 * (8 + 8 + 7)
"""Of both epochs: 90 samples in batches of 32 and shards of 4."""
WALKING = PAIR.with_options(strategy="local", sync_every=3)
"""Replicas meet once an epoch, in rounds 3 and 7."""
JOURNEYS, BLOCKS = 2 * 8, 3 * 5


class Tally:
    """What all processes do together: a byte in a file for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def add(self, count: int) -> None:
        with open(self._path, "ab", buffering=0) as file:
            file.write(b"." * count)

    def __int__(self) -> int:
        return self._path.stat().st_size


def totals(monkeypatch: Any, path: Path, kind: type, name: str = "loss_and_grad") -> Tally:
    """How many shards, or blocks, models of that kind have finished."""
    found, method = Tally(path), getattr(kind, name)

    def counted(model: Any, x: Any, *rest: Any) -> Any:
        sums = method(model, x, *rest)
        found.add(len(x))
        return sums

    monkeypatch.setattr(kind, name, counted)
    return found


def interrupt(monkeypatch: Any, path: Path, kind: type, work: Callable[[GradientStep], object]) -> Fault:
    """`work` is done by rank 0 in the middle of its first shard of round 2; the fault is the death of rank 1 then."""
    make, method, now = GradientStep.make, kind.loss_and_grad, []

    def made(one: GradientStep, batch: Any, spent: Any) -> int:
        now[:] = [one] if (one._member.slot, batch.position) == (0, 2) and not path.exists() else []
        return make(one, batch, spent)

    def worked(*given: Any) -> Any:
        if now:
            path.touch()
            work(now.pop())
        return method(*given)

    def die(words: Any) -> None:
        assert wait_until(path.exists, 20.0)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(GradientStep, "make", made)
    monkeypatch.setattr(kind, "loss_and_grad", worked)
    return Fault(1, PULSED, position=2, act=die)


ONCE = {
    "every shard, after a shard": (PAIR, Fault(0, PULSED, position=2), Chain, "loss_and_grad", SHARDS),
    "every shard, after all of them": (PAIR, kill_at(1, 2, READY, "before"), Chain, "loss_and_grad", SHARDS),
    "every journey of a replica": (WALKING, kill_at(1, 3, READY, "before"), LocalSteps, "loss_and_grad", JOURNEYS),
    "every block of an evaluation": (PAIR, kill_at(0, CLOSING, READY, "before"), Chain, "evaluate", BLOCKS),
}


@pytest.mark.parametrize(("recipe", "fault", "kind", "name", "count"), ONCE.values(), ids=ONCE)
def test_it_is_computed_once(monkeypatch, tmp_path, recipe, fault, kind, name, count):
    expected, computed = quiet(recipe), totals(monkeypatch, tmp_path / "computed", kind, name)
    trial(monkeypatch, recipe, fault).check(expected)
    assert int(computed) == count


def test_every_shard_of_a_torch_module_is_computed_once(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    from unisono.models.torch.model import TorchModel

    recipe = PAIR.with_options(engine="torch", dropout=0.2)
    expected, computed = quiet(recipe), totals(monkeypatch, tmp_path / "computed", TorchModel)
    trial(monkeypatch, recipe, kill_at(1, 2, READY, "before")).check(expected)
    assert int(computed) == SHARDS


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_rank_stands_still_after_the_shard_that_it_computes(monkeypatch, tmp_path, engine):
    kind: type = Chain
    if engine == "torch":
        pytest.importorskip("torch")
        from unisono.models.torch.model import TorchModel as kind  # type: ignore[no-redef]
    recipe, before, when_still = PAIR.with_options(engine=engine), tmp_path / "before", tmp_path / "when still"
    monkeypatch.setattr(gradients, "LONG_S", -1.0)  # whatever a shard takes
    expected, computed = quiet(recipe), totals(monkeypatch, tmp_path / "computed", kind)

    def wait(one: GradientStep) -> None:
        wait_until(lambda: freezing(one._member.words, one._member.view.number), 20.0)
        before.write_text(str(int(computed)))  # rank 1 has died

    death = interrupt(monkeypatch, tmp_path / "inside", kind, wait)
    still = Fault(0, FROZEN, act=lambda words: when_still.write_text(str(int(computed))))
    trial(monkeypatch, recipe, death, still).check(expected)
    assert int(when_still.read_text()) == int(before.read_text()) + 1


def test_a_replacement_that_is_ready_in_time_joins_when_the_others_re_form(monkeypatch, tmp_path):
    """They stand still once, not twice."""
    recipe, ready, hear = PAIR.with_options(respawn=True), tmp_path / "ready", Replacements.get_ready
    expected = quiet(recipe)

    def heard(replacements: Replacements, slot: int) -> None:
        hear(replacements, slot)
        ready.touch()

    monkeypatch.setattr(Replacements, "get_ready", heard)
    death = interrupt(monkeypatch, tmp_path / "inside", Chain, lambda one: wait_until(ready.exists, 20.0))
    found = trial(monkeypatch, recipe, death)
    found.check(expected)
    assert [(event["kind"], event["ranks"]) for event in found.events] == [("death", 2), ("join", 2)]
