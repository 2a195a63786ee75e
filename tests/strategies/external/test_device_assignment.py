"""Which device a rank gets: arithmetic, tried without a GPU."""

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies import registry
from unisono.strategies.external import spec as external
from unisono.strategies.external.device_assignment import (
    check_devices,
    check_one_kind,
    choose_device,
    device_of,
    local_ranks,
)


@pytest.mark.parametrize(
    ("wanted", "gpus", "device"), [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda", 1, "cuda")]
)
def test_the_choice(wanted, gpus, device):
    assert choose_device(wanted, gpus) == device


def test_the_local_rank_picks_the_device():
    assert local_ranks([4, 4, 9, 4, 9]) == [0, 1, 0, 2, 1]
    assert [device_of("cuda", local) for local in local_ranks([4, 9, 9])] == ["cuda:0", "cuda:0", "cuda:1"]
    assert device_of("cpu", 5) == "cpu"


def test_more_ranks_than_gpus_are_refused():
    check_devices("cuda", 2, 2)
    check_devices("cpu", 9, 0)
    with pytest.raises(UserError, match=r"3 ranks on this node, and torch sees 2 GPUs.*\nHINT: use --ranks 2 "):
        check_devices("cuda", 3, 2)
    with pytest.raises(UserError, match="HINT: use --device cpu"):
        check_devices("cuda", 1, 0)


def test_ranks_that_chose_differently_are_refused():
    check_one_kind(["cuda", "cuda"])
    with pytest.raises(UserError, match="rank 0 computes on cuda, rank 2 on cpu: nodes differ\nHINT"):
        check_one_kind(["cuda", "cuda", "cpu"])


@pytest.mark.parametrize("strategy", ["ddp", "accelerate"])
def test_a_recipe_on_a_machine_with_two_gpus(monkeypatch, strategy):
    monkeypatch.setattr(external, "_gpus", lambda: 2)
    monkeypatch.setattr(external, "find_spec", lambda name: object())
    recipe = registry.resolve(Recipe.from_options(strategy=strategy, ranks=2))
    assert recipe.strategy.device == "cuda"
    spec = registry.of(recipe)
    spec.check_devices(recipe)
    assert spec.devices(recipe, range(2)) == ["cuda:0", "cuda:1"]
    assert spec.transport(recipe, "shm") == "nccl"
    assert registry.resolve(Recipe.from_options(strategy=strategy, ranks=2, device="cpu")).strategy.device == "cpu"
    with pytest.raises(UserError, match="3 ranks on this node, and torch sees 2 GPUs"):
        spec.check_devices(registry.resolve(Recipe.from_options(strategy=strategy, ranks=3)))
    sync = registry.resolve(Recipe.from_options(ranks=3))
    registry.of(sync).check_devices(sync)
    assert registry.of(sync).devices(sync, range(3)) == []
