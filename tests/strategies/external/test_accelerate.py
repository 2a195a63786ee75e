"""`accelerate` against `sync` and `ddp`; without the package there is one clear message."""

from typing import Any

import pytest

from support.strategies.peers_cases import JOB, NORMED, ROUNDING, distance, ends_agree, run_all
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.external import spec as external
from unisono.strategies.registry import resolve

BY = {"strategy": "accelerate"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    runs = {}
    for ranks in (1, 2, 3):
        runs[f"sync {ranks}"] = NORMED | {"ranks": 1, "shards": ranks}
        runs[f"accelerate {ranks}"] = NORMED | BY | {"ranks": ranks}
    clipped = JOB | {"optimizer": "nesterov", "clip": 0.5, "weight_decay": 0.01, "schedule": "cosine"}
    runs["clipped sync"] = clipped | {"ranks": 1, "shards": 2}
    runs["clipped"] = clipped | BY | {"ranks": 2}
    runs["clipped ddp"] = clipped | {"strategy": "ddp", "ranks": 2}
    runs["bf16"] = JOB | BY | {"ranks": 2, "precision": "bf16"}
    runs["fp32"] = JOB | BY | {"ranks": 2}
    runs["bf16 ddp"] = JOB | {"strategy": "ddp", "ranks": 2, "precision": "bf16"}
    runs["stopping"] = JOB | BY | {"ranks": 3, "epochs": 5, "target_accuracy": 0.2, "patience": 1}
    return run_all(runs, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_weights_agree_with_sync_after_50_steps(found, ranks):
    assert distance(found[f"sync {ranks}"], found[f"accelerate {ranks}"]) < ROUNDING
    assert ends_agree(found[f"accelerate {ranks}"])
    assert distance(found[f"sync {ranks}"], found[f"accelerate {ranks % 3 + 1}"]) > 100 * ROUNDING


def test_clipping_and_schedule_agree_with_sync_and_ddp(found):
    assert distance(found["clipped sync"], found["clipped"]) < ROUNDING
    assert distance(found["clipped ddp"], found["clipped"]) < ROUNDING


def test_its_own_mixed_precision_is_used(found):
    one, other = found["bf16"]["ends"][0], found["bf16 ddp"]["ends"][0]
    assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-2)
    assert distance(found["bf16"], found["bf16 ddp"]) < distance(found["bf16"], found["fp32"])


def test_all_ranks_stop_early_at_once(found):
    assert ends_agree(found["stopping"])
    assert 1 <= found["stopping"]["ends"][0]["epochs"] < 5


def test_without_the_package_there_is_a_hint(monkeypatch):
    monkeypatch.setattr(external, "find_spec", lambda name: None if name == "accelerate" else object())
    with pytest.raises(UserError) as error:
        resolve(Recipe.from_options(strategy="accelerate"))
    assert "--strategy accelerate needs the package accelerate" in str(error.value)
    assert "pip install -c constraints.txt '.[accelerate]' in unisono's repository" in str(error.value)
    assert resolve(Recipe.from_options(strategy="ddp", device="cpu")).model.engine == "torch"
