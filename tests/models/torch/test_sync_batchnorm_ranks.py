"""Whole runs with --sync-batchnorm: same bits on any number of ranks, also if some die in the middle of an exchange."""

import pytest

import unisono
from support.models.sync_batchnorm_outcomes import run_all

DATA = "synthetic:classes=4,rows=150,features=16,test_rows=300"
SMALL = {"model": "bn-mlp:12,9", "dropout": 0.3, "data": DATA, "batch_size": 44, "epochs": 2, "sync_batchnorm": True}
"""Steps of 44 samples in shards of 6, the last of 2; the ragged end has 18: ranks without a shard."""
BF16 = SMALL | {"precision": "bf16", "clip": 0.5, "optimizer": "momentum"}
ONE_EACH = SMALL | {"batch_size": 8, "epochs": 1}

RUNS = {
    "small": [(SMALL | {"ranks": ranks}, []) for ranks in (1, 2, 3, 4, 8)],
    "bf16, clipped": [(BF16 | {"ranks": ranks}, []) for ranks in (1, 3)],
    "shards of one sample": [(ONE_EACH | {"ranks": ranks}, []) for ranks in (1, 2)],
    "without": [(SMALL | {"sync_batchnorm": False, "engine": "torch", "ranks": 2}, [])],
    "killed": [
        (SMALL | {"ranks": 3}, [[1, 1, "before"]]),  # its first exchange
        (SMALL | {"ranks": 3}, [[0, 7, "after"]]),  # in a backward
        (SMALL | {"ranks": 4}, [[2, 10, "before"], [0, 14, "after"]]),
        (SMALL | {"ranks": 2, "respawn": False}, [[1, 6, "after"]]),
    ],
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[dict]]:
    """Of all `RUNS`, one after the other in a process of their own."""
    runs = [run for group in RUNS.values() for run in group]
    found = iter(unisono.run(lambda world: run_all(runs), 1, start="fork")[0])
    return {name: [next(found) for _ in group] for name, group in RUNS.items()}


@pytest.mark.parametrize("name", [name for name in RUNS if name != "killed"])
def test_bits_and_scores_do_not_depend_on_the_ranks(outcomes, name):
    for outcome in outcomes[name]:
        assert (outcome["weights"], outcome["scores"]) == (outcomes[name][0]["weights"], outcomes[name][0]["scores"])
        assert outcome["engine"] == "torch"
        assert outcome["timed"] == (name != "without")


def test_a_kill_in_the_middle_of_an_exchange_changes_nothing(outcomes):
    for (_, kills), outcome in zip(RUNS["killed"], outcomes["killed"], strict=True):
        assert outcome["fired"] == [True] * len(kills)
        assert outcome["takeovers"] == len(kills)
        assert outcome["weights"] == outcomes["small"][0]["weights"]
        assert outcome["scores"] == outcomes["small"][0]["scores"]


def test_it_is_another_result_than_without(outcomes):
    """Else the tests above could not fail."""
    names = ("small", "bf16, clipped", "shards of one sample", "without")
    assert len({outcomes[name][0]["weights"] for name in names}) == len(names)
