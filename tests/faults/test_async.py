"""Asynchronous ranks that die: masters lose nothing, workers lose the batch that they were computing.

A run that lost a master has the bits of a quiet one. What a run that lost a worker should have found is computed from
its log by the plain loop, and must be what it found, to the last bit.
"""

from typing import Any

import pytest

from support.faults.async_runs import PUSHES, RECIPE, Knife, deaths, lend, of_log, run
from support.strategies.async_reference import in_turn, reference
from unisono.optim.base import Optimizer
from unisono.strategies.asynchronous.arena.arena_sequencer import ArenaSequencer
from unisono.strategies.asynchronous.arena.parameter_part import ParameterShard
from unisono.strategies.asynchronous.arena.worker import Worker
from unisono.strategies.asynchronous.push_update import PushUpdate
from unisono.training.job import prepare

pytestmark = pytest.mark.usefixtures("no_price", "few_cores")


def spoil(params: Any, gradient: Any, state: Any, *rest: Any) -> None:
    """Half of an update is done, and wrong."""
    for vector in (params, *state):
        vector[: len(vector) // 2] += 1.0


def spoil_new(entry: Any, gradient: Any, places: Any, *rest: Any) -> None:
    places.new[: len(places.new) // 2] += 1.0


def nothing(*given: Any) -> None:
    pass


MASTER = [
    pytest.param(PushUpdate, "apply", 7, "before", spoil_new, id="in the middle of an update"),
    pytest.param(PushUpdate, "apply", 7, "after", nothing, id="after an update"),
    pytest.param(ParameterShard, "_answer", 6, "before", nothing, id="before an answer"),
    pytest.param(ParameterShard, "_answer", 6, "after", nothing, id="after an answer"),
]


@pytest.mark.parametrize(("cls", "name", "at", "when", "act"), MASTER)
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("rule", ["safe", "softsync", "delay-compensated"])
def test_the_death_of_a_master_changes_nothing(monkeypatch, cls, name, at, when, act, rank, rule):
    recipe = RECIPE.with_options(staleness_rule=rule)
    knife = Knife(rank, at, when, act).into(monkeypatch, cls, name)
    sha256, _, events = run(recipe)
    assert knife.struck
    assert deaths(events) == [rank]
    assert sha256 == reference(prepare(recipe), [in_turn(PUSHES, 2, 3)])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rank", [0, 1])
def test_an_optimizers_state_is_taken_back_too(monkeypatch, when, rank):
    recipe = RECIPE.with_options(optimizer="adam", lr=0.01)
    knife = Knife(rank, 4, when, spoil).into(monkeypatch, Optimizer, "update")
    sha256, _, _ = run(recipe)
    assert knife.struck
    assert sha256 == reference(prepare(recipe), [in_turn(PUSHES, 2, 3)])


def test_a_worker_that_pushes_twice_in_a_row_has_the_only_copy(monkeypatch):
    recipe = RECIPE.with_options(ranks=2, masters=1)
    knife = Knife(0, 7, "before", spoil_new).into(monkeypatch, PushUpdate, "apply")
    sha256, _, _ = run(recipe)
    assert knife.struck
    assert sha256 == reference(prepare(recipe), [in_turn(PUSHES, 1, 1)])


@pytest.mark.parametrize("name", ["_write", "_hand_out", "_keep"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_death_of_the_sequencer_changes_nothing(monkeypatch, name, when):
    knife = Knife(0, 8, when).into(monkeypatch, ArenaSequencer, name)
    sha256, _, _ = run(RECIPE.with_options(deal="dynamic"))
    assert knife.struck
    order = [(2 + push % 3, push) for push in range(PUSHES)]
    assert sha256 == reference(prepare(RECIPE), [order])


def test_all_masters_die_and_a_worker_stands_in(monkeypatch):
    knives = [Knife(rank, 5, "before").into(monkeypatch, ParameterShard, "_answer") for rank in (0, 1)]
    sha256, _, events = run(RECIPE.with_options(respawn=False))
    assert [knife.struck for knife in knives] == [True, True]
    assert sorted(deaths(events)) == [0, 1]
    assert sha256 == reference(prepare(RECIPE), [in_turn(PUSHES, 2, 3)])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["_compute", "_post"])
@pytest.mark.parametrize("respawn", [True, False])
@pytest.mark.parametrize(("order", "deal"), [("round-robin", "static"), ("free", "dynamic")])
def test_the_death_of_a_worker_costs_its_batch_alone(monkeypatch, name, when, respawn, order, deal):
    recipe = RECIPE.with_options(respawn=respawn, order=order, deal=deal)
    knife = Knife(3, 3, when).into(monkeypatch, Worker, name)
    sha256, log, events = run(recipe)
    assert knife.struck
    assert deaths(events) == [3]
    assert sha256 == of_log(recipe, log)


UPDATING = "in the middle of an update"
HANDS = {
    UPDATING: (PushUpdate, "apply", 9, spoil_new),
    "answering": (ParameterShard, "_answer", 9, nothing),
    "writing the log": (ArenaSequencer, "_write", 5, nothing),
    "handing out batches": (ArenaSequencer, "_hand_out", 5, nothing),
    "keeping sums": (ArenaSequencer, "_keep", 4, nothing),
    "opening": (ArenaSequencer, "open", 1, nothing),
}


@pytest.mark.parametrize(
    ("rule", "hand", "when"),
    [
        *(("safe", hand, when) for hand in HANDS for when in ("before", "after")),
        ("softsync", UPDATING, "before"),
        ("delay-compensated", UPDATING, "before"),
    ],
)
def test_a_worker_that_lends_a_hand_dies_with_the_pen(monkeypatch, rule, hand, when):
    """What it had begun is taken back."""
    lend(monkeypatch)
    recipe = RECIPE.with_options(staleness_rule=rule, order="free")
    cls, name, at, act = HANDS[hand]
    knife = Knife(None, at, when, act).into(monkeypatch, cls, name)
    sha256, log, events = run(recipe)
    assert knife.struck
    assert len(deaths(events)) == 1
    assert sha256 == of_log(recipe, log)


@pytest.mark.parametrize(("order", "deal"), [("round-robin", "static"), ("round-robin", "dynamic")])
@pytest.mark.parametrize("rule", ["safe", "softsync"])
def test_who_does_it_changes_nothing(monkeypatch, order, deal, rule):
    recipe, found = RECIPE.with_options(order=order, deal=deal, staleness_rule=rule), set()
    for cores in (1, 64):
        monkeypatch.setattr("unisono.strategies.asynchronous.arena.strategy.usable_cores", lambda cores=cores: cores)
        found.add(run(recipe)[0])
    assert len(found) == 1


def test_all_workers_die_and_masters_stand_in(monkeypatch):
    knives = [Knife(rank, 3, "before").into(monkeypatch, Worker, "_compute") for rank in (2, 3, 4)]
    recipe = RECIPE.with_options(respawn=False)
    sha256, log, events = run(recipe)
    assert [knife.struck for knife in knives] == [True] * 3
    assert sorted(deaths(events)) == [2, 3, 4]
    assert {entry.rank for entry in log} == {0, 1, 2, 3, 4}
    assert sha256 == of_log(recipe, log)


def test_the_last_rank_finishes_alone(monkeypatch):
    recipe = RECIPE.with_options(respawn=False, ranks=3, masters=1)
    Knife(0, 4, "before").into(monkeypatch, ParameterShard, "_answer")
    Knife(2, 4, "before").into(monkeypatch, Worker, "_compute")
    _, log, events = run(recipe)
    assert sorted(deaths(events)) == [0, 2]
    assert [entry.rank for entry in log][-1] == 1
