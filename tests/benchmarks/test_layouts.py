"""The table of `benchmarks/layouts.py`: what its rows are, that its verdicts can go either way, and that rows which
are done are kept."""

from pathlib import Path

import layouts
import numpy as np
import pytest
from layouts import BATCH, RANKS, Cell, Kept, line_of, mean_of, rows_of

from unisono.data.dataset import Dataset
from unisono.recipe import Recipe


def made(*accuracy: float, weights: str = "a1") -> Cell:
    return {"accuracy": list(accuracy), "weights_sha256": weights, "s": 1.0}


def test_rows_differ_in_what_their_names_say_alone():
    one, four, alone, follows, plain, ours = rows_of(Recipe.from_options(lr=0.001))
    assert four.recipe.with_options(ranks=1) == one.recipe
    assert (four.against, four.exact, follows.against, plain.against) == (0, True, 2, 2)
    assert follows.recipe.with_options(ranks=1, shards=1) == alone.recipe
    learning = plain.recipe.learning
    assert (plain.recipe.strategy.name, learning.scale_lr, learning.warmup_epochs) == ("ddp", "none", 0.0)
    assert ours.recipe.with_options(strategy="ddp", shards=0) == plain.recipe
    assert {row.recipe.learning.batch_size_per_rank for row in (alone, follows, plain)} == {BATCH}
    assert one.recipe.learning.batch_size == BATCH * RANKS


def test_verdicts():
    one, four, *_, plain = rows_of(Recipe())
    assert line_of(one, made(0.5, 0.6), None).endswith(" 60.00  a1")
    assert line_of(four, made(0.5, 0.6), made(0.5, 0.6)).endswith(" equal")
    assert line_of(four, made(0.4, 0.6), made(0.5, 0.6)).endswith(" NOT EQUAL: +0.00 points")
    assert line_of(four, made(0.5, 0.6), made(0.5, 0.6, weights="b2")).endswith(" NOT EQUAL: +0.00 points")
    assert line_of(plain, made(0.5, 0.5), made(0.5, 0.6)).endswith(" -10.00 points")


def test_the_mean_of_seeds_names_the_worst_and_the_best():
    plain = rows_of(Recipe())[-1]
    line = mean_of(plain, [made(0.5), made(0.7)], [made(0.6), made(0.69)])
    assert line.endswith(" -4.50 points, from -10.00 to +1.00")


def test_rows_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Recipe] = []

    def train(recipe: Recipe, data: Dataset) -> Cell:
        asked.append(recipe)
        return made(0.1 * len(asked))

    monkeypatch.setattr(layouts, "trained", train)
    part = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)
    data = Dataset("few", *part, *part, *part, classes=2, shape=(3,))
    path, one, other = tmp_path / "new" / "rows.json", Recipe(), Recipe.from_options(seed=1)
    assert Kept(path).cell(one, data) == made(0.1)
    again = Kept(path)  # as after an interruption
    assert (again.cell(one, data), again.cell(other, data)) == (made(0.1), made(0.2))
    assert (asked, again.found) == ([one, other], 1)
