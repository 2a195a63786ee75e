"""Our networks by `unisono train`, in fp32, in bf16, with synchronised batch norm: same bits on any number of ranks."""

import numpy as np
import pytest

import unisono
from support.models.rank_outcomes import run_all

NETS = {
    "bn-mlp": {"model": "bn-mlp:24,12", "engine": "torch", "dropout": 0.3},
    "cnn": {"model": "cnn:4,6", "dropout": 0.2},
    "wideresnet": {"model": "wideresnet:1"},
    "gpt": {
        "model": "gpt:layers=1,heads=2,width=16",
        "dropout": 0.1,
        "data": "synthetic-text:characters=300,context=8",
    },
}
WAYS = {
    "fp32": ({}, (1, 2, 3, 4, 8)),
    "bf16": ({"precision": "bf16"}, (1, 3)),
    "synchronised": ({"sync_batchnorm": True}, (1, 3)),
}


@pytest.fixture(scope="module", params=NETS)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """Of a network, by way: all runs one after the other in a process of their own."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "images.npz"
    images, labels = rng.random((36, 8, 8), np.float32), np.arange(36) % 4
    np.savez(path, train_x=images[:26], train_y=labels[:26], test_x=images[26:], test_y=labels[26:])
    # Batches of 24 in shards of 3, and a ragged end of 2: a shard that is smaller, and ranks without one.
    usual = {"data": str(path), "batch_size": 24, "epochs": 1, "optimizer": "adamw", "lr": 0.01, "clip": 0.5}
    ways = {way: runs for way, runs in WAYS.items() if (request.param, way) != ("gpt", "synchronised")}
    runs = [(usual | NETS[request.param] | options, ranks) for options, ranks in ways.values()]
    (found,) = unisono.run(lambda world: run_all(runs), 1, start="fork")
    return dict(zip(ways, found, strict=True))


def test_bits_and_scores_do_not_depend_on_the_ranks(outcomes):
    for way, found in outcomes.items():
        assert len(found) == len(WAYS[way][1])
        for ranks, outcome in zip(WAYS[way][1], found, strict=True):
            assert outcome == found[0], f"{way} on {ranks} ranks"


def test_ways_differ(outcomes):
    """Else they would not have been tried."""
    assert len({found[0]["weights"][0] for found in outcomes.values()}) == len(outcomes)
