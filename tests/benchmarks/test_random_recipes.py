"""The draws of `benchmarks/random_recipes.py`: that they repeat and reach everything, and that its verdicts can go
either way."""

from collections import Counter
from pathlib import Path

import pytest
import recipe_ways
from random_recipes import Tally, reason_of, show
from recipe_draws import (
    AFTER,
    BEFORE,
    ENGINES,
    FOR_IMAGES,
    FOR_ROWS,
    FOR_TEXT,
    MOST_RANKS,
    STEP,
    UPDATE,
    Draw,
    Strike,
    Way,
    draw_recipe,
)  # fmt: skip
from recipe_ways import DEATH, DIFFERS, EQUAL, FAILED, MACHINES, RANKS, REFUSED, RESUME, Ended, Found, Result, carry_out

from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe

SMALL = Recipe.from_options(
    model="bn-mlp:65,31", data="synthetic:classes=3,rows=53,features=13", engine="numpy", batch_size=24, epochs=2
)


def drawn(*ways: Way, recipe: Recipe = SMALL) -> Draw:
    return Draw(0, recipe.model.engine, 0, recipe, ways)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_draw_is_a_matter_of_seed_engine_and_number(engine, tmp_path):
    one = draw_recipe(7, engine, 3, tmp_path)
    assert one == draw_recipe(7, engine, 3, tmp_path)
    assert len({str(draw_recipe(seed, engine, number, tmp_path)) for seed in (7, 8) for number in range(10)}) == 20


@pytest.mark.parametrize("engine", ENGINES)
def test_draws_reach_every_network_optimizer_and_way(engine, tmp_path):
    found = [draw_recipe(1, engine, number, tmp_path) for number in range(400)]
    names = {draw.recipe.model.name.rpartition(".py:")[2].partition(":")[0] for draw in found}
    torchs = {"cnn", "wideresnet", "gpt", *FOR_ROWS, *FOR_IMAGES, *FOR_TEXT} if engine == "torch" else set()
    assert names == {"linear", "mlp", "bn-mlp"} | torchs
    optimizers = {"sgd", "momentum", "nesterov", "adam", "adamw", "lars"}
    assert {draw.recipe.learning.optimizer for draw in found} == optimizers
    assert {draw.recipe.strategy.name for draw in found} == {"sync", "local"}
    ways = [way for draw in found for way in draw.ways]
    assert {way.strike.moment for way in ways if way.strike and not way.then} == {STEP, BEFORE, AFTER, UPDATE}
    assert sum(len(way.ranks) > 1 for way in ways) > 100
    assert sum(bool(way.then) for way in ways) > 100
    assert {way.ranks[0] for way in ways if len(way.ranks) == 1} == set(range(1, MOST_RANKS + 1))
    for draw in found:
        assert len({way.ranks for way in draw.ways if way.strike is None}) >= 2
        for way in draw.ways:
            assert max(sum(way.ranks), sum(way.then)) <= (draw.recipe.ranks.shards or MOST_RANKS)
            if way.strike is not None and not way.then:
                assert way.ranks[way.strike.machine] > 1, "somebody is left"


def test_a_death_and_a_resume_happen_and_leave_the_bits_alone(tmp_path):
    deaths = [Way((3,), Strike(0, 1, 0.4, moment, 2)) for moment in (STEP, BEFORE, AFTER, UPDATE)]
    result = carry_out(drawn(Way((1,)), *deaths, Way((2,), Strike(0, 1, 0.5), (5,))), tmp_path)
    assert (result.verdict, result.text) == (EQUAL, "")
    assert result.kinds == Counter({RANKS: 1, DEATH: 4, RESUME: 1})


def test_two_machines(tmp_path):
    pytest.importorskip("torch")
    ways = Way((1,)), Way((2, 1), Strike(0, 1, 0.3, STEP)), Way((1, 2), Strike(1, 0, 0.6), (1, 1))
    result = carry_out(drawn(*ways), tmp_path)
    assert (result.verdict, result.text) == (EQUAL, "")
    assert result.kinds == Counter({RANKS: 1, MACHINES: 2, DEATH: 1, RESUME: 1})


def test_bits_that_depend_on_the_ranks_are_a_finding(tmp_path, monkeypatch):
    def run_otherwise(recipe, *rest):
        return run_recipe(recipe.with_options(seed=recipe.ranks.count), *rest)

    monkeypatch.setattr(recipe_ways, "run_recipe", run_otherwise)
    result = carry_out(drawn(Way((1,)), Way((3,))), tmp_path)
    assert result.verdict == DIFFERS
    first, other, again = result.text.splitlines()
    assert first.endswith("1 rank")
    assert other.endswith("3 ranks  other weights  other records")
    assert again == first


@pytest.mark.parametrize("ends", [(REFUSED, REFUSED), (EQUAL, FAILED)], ids=["all", "some"])
def test_what_all_ways_refuse_is_drawn_again_and_what_some_refuse_is_a_finding(ends, tmp_path, monkeypatch):
    def run(recipe: Recipe, way: Way, folder: Path, kinds: Counter) -> Found:
        if ends[0] == EQUAL and way.ranks == (1,):
            return Found("a1", ())
        raise Ended(REFUSED, "a batch of 2")

    monkeypatch.setattr(recipe_ways, "_run", run)
    result = carry_out(drawn(Way((1,)), Way((2,))), tmp_path)
    assert result.verdict == ends[1]
    assert "a batch of 2" in result.text


def test_an_epoch_of_the_same_weights_with_another_loss_is_a_finding(tmp_path, monkeypatch):
    found = iter([Found("a1", ("0.5",)), Found("a1", ("0.5000001",)), Found("a1", ("0.5",))])
    monkeypatch.setattr(recipe_ways, "_run", lambda *given: next(found))
    result = carry_out(drawn(Way((1,)), Way((2,))), tmp_path)
    assert result.verdict == DIFFERS
    assert "2 ranks  other records" in result.text


def test_a_run_that_does_not_end_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_ways, "run_recipe", lambda recipe: recipe_ways.time.sleep(600))
    monkeypatch.setattr(recipe_ways, "LIMIT_S", 0.5)
    result = carry_out(drawn(Way((1,)), Way((2,))), tmp_path)
    assert (result.verdict, result.text[:20]) == (recipe_ways.STUCK, "1 rank: not ended af")


def tally_of(*verdicts: str) -> dict[str, Tally]:
    totals = Tally("torch", 2)
    for verdict in verdicts:
        totals.add(Result("torch-1", verdict, "a batch of 7 for 8 ranks", Counter({RANKS: 2, DEATH: 1})))
    return {"torch": totals}


def test_all_is_well_if_as_many_as_wanted_ended_equal(capsys):
    assert show(tally_of(EQUAL, REFUSED, EQUAL), 5, 1.0)
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["drawn again, torch: 1 x a batch of # for # ranks", "seed 5; 1 s"]
    assert told[2].startswith(
        "torch: 2 recipes: 2 equal, 0 DIFFERS, 0 FAILED, 0 STUCK; 4 quiet runs, 0 on two machines, 2"
    )
    assert not show(tally_of(EQUAL, EQUAL, DIFFERS), 5, 1.0)
    assert not show(tally_of(EQUAL, FAILED), 5, 1.0)
    assert not show(tally_of(EQUAL, REFUSED), 5, 1.0), "too few"


def test_reasons_leave_out_what_differs():
    assert reason_of("model 'mlp:3' of /tmp/a.npz: 12 rows\nHINT") == "model # of # # rows"
