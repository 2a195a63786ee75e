"""Enough for every rank: what is refused, and whether what the hint says is possible."""

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.training.checks import check_samples, check_shards


@pytest.mark.parametrize(
    "options", [{"shards": 0}, {"shards": 9}, {"shards": 12}, {"shards": 8, "strategy": "async"}], ids=str
)
def test_shards_for_all(options):
    check_shards(Recipe.from_options(ranks=9, **options))


RESUMED = {"ranks": 9, "shards": 8, "resume": "runs/a"}


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"ranks": 9, "shards": 8}, "give --shards 9, which gives other bits, or --ranks 8 or less"),
        ({"ranks": 2, "shards": 1}, "give --shards 2, which gives other bits, or --ranks 1"),
        (
            RESUMED,
            "give --ranks 8 or less: a run keeps its 8 shards, and its bits; for other bits from here on: --shards 9 "
            "--allow-change shards",
        ),
        ({**RESUMED, "allow_change": "epochs"}, "give .* --shards 9 --allow-change epochs,shards"),
        ({**RESUMED, "strategy": "local"}, "give --ranks 8 or less: a run keeps its 8 shards, and its bits"),
    ],
    ids=str,
)
def test_fewer_shards_than_ranks(options, hint):
    with pytest.raises(UserError, match=rf"^--shards \d is less than --ranks \d: .*\nHINT: {hint}$"):
        check_shards(Recipe.from_options(**options))


@pytest.mark.parametrize(
    ("size", "hint"),
    [
        (2, "use --ranks 2 or less, or a larger --batch-size"),
        (1, "use --ranks 1, or"),
        (5, ": there are no more samples"),
    ],
)
def test_fewer_samples_than_ranks(size, hint):
    samples = "1 sample" if size == 1 else f"{size} samples"
    with pytest.raises(UserError, match=f"a batch of {samples} for 6 ranks.*\nHINT: .*{hint}"):
        check_samples(Recipe.from_options(ranks=6), size, 5)
    check_samples(Recipe.from_options(ranks=size), size, 5)
