"""`ddp` and `accelerate` against `sync`: the same training but for rounding, on any number of ranks."""

from typing import Any

import numpy as np
import pytest

from support.strategies.peers_cases import JOB, NORMED, ROUNDING, distance, ends_agree, run_all
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.external.module_wrapper import explained
from unisono.strategies.registry import resolve

PEERS = ["ddp", "accelerate"]
OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.fixed = nn.Linear(64, 16).requires_grad_(False)
        self.idle = nn.Parameter(torch.randn(3))
        self.codes = nn.Parameter(torch.arange(outputs).flip(0), requires_grad=False)
        self.out = nn.Linear(16, outputs)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.out(torch.tanh(self.fixed(x.flatten(1))))[:, self.codes]


class Moody(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.rare, self.out = nn.Linear(64, outputs), nn.Linear(64, outputs)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        x = x.flatten(1)
        if not self.training:
            return self.out(x)
        self.calls += 1  # in the first steps, and in most, one part is not used
        return self.out(x) + self.rare(x) if self.calls % 5 == 4 else self.out(x)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "own.py").write_text(OWN)
    own = JOB | {"model": f"{folder}/own.py:Net", "dropout": 0.0, "data": "digits"}
    clipped = JOB | {"optimizer": "nesterov", "clip": 0.5, "weight_decay": 0.01, "schedule": "cosine"}
    runs = {}
    for ranks in (1, 2, 3):
        runs[f"sync {ranks}"] = NORMED | {"ranks": 1, "shards": ranks}
        runs |= {f"{peer} {ranks}": NORMED | {"ranks": ranks, "strategy": peer} for peer in PEERS}
    pairs = {"plain": JOB, "clipped": clipped, "adamw": JOB | {"optimizer": "adamw", "lr": 0.003}, "own": own}
    pairs["bf16"] = JOB | {"precision": "bf16"}
    pairs["moody"] = own | {"model": f"{folder}/own.py:Moody", "optimizer": "adam", "lr": 0.003}
    for name, options in pairs.items():
        runs[f"{name} sync"] = options | {"ranks": 1, "shards": 2}
        runs[f"{name} ddp"] = options | {"ranks": 2, "strategy": "ddp"}
    for name in ("plain", "clipped", "bf16"):
        runs[f"{name} accelerate"] = runs[f"{name} ddp"] | {"strategy": "accelerate"}
    runs["moody ring"] = pairs["moody"] | {"ranks": 2, "shards": 2, "allreduce": "ring"}
    runs["factor"] = JOB | {"ranks": 2, "strategy": "ddp", "fault": "factor"}
    runs["elsewhere"] = NORMED | {"ranks": 2, "strategy": "ddp", "fault": "elsewhere"}
    runs["elsewhere, bf16"] = JOB | {"ranks": 2, "strategy": "ddp", "fault": "elsewhere", "precision": "bf16"}
    runs["fp16"] = JOB | {"ranks": 2, "strategy": "ddp", "precision": "fp16", "clip": 1.0}
    for peer in PEERS:
        stopping = {"epochs": 5, "target_accuracy": 0.2, "patience": 1}
        runs[f"stopping {peer}"] = JOB | stopping | {"ranks": 3, "strategy": peer}
    return run_all(runs, folder)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_weights_agree_with_sync_after_50_steps(found, ranks, peer):
    """With dropout, batch norm and a ragged end."""
    assert found[f"{peer} {ranks}"]["ends"][0]["steps"] == 52
    assert distance(found[f"sync {ranks}"], found[f"{peer} {ranks}"]) < ROUNDING
    assert ends_agree(found[f"{peer} {ranks}"])
    # Else the lines above could not fail.
    assert distance(found[f"sync {ranks}"], found[f"{peer} {ranks % 3 + 1}"]) > 100 * ROUNDING


def test_a_wrong_factor_shows(found):
    assert distance(found["plain sync"], found["plain ddp"]) < ROUNDING
    assert distance(found["plain sync"], found["factor"]) > 100 * ROUNDING


@pytest.mark.parametrize(
    ("name", "peer"), [("clipped", "ddp"), ("adamw", "ddp"), ("own", "ddp"), ("clipped", "accelerate")]
)
def test_optimizers_clipping_and_unused_parameters(found, name, peer):
    assert distance(found[f"{name} sync"], found[f"{name} {peer}"]) < ROUNDING


def test_adam_counts_the_steps_of_each_parameter(found):
    """As torch does: corrections of its averages are those of the steps in which a parameter was used."""
    assert distance(found["moody sync"], found["moody ddp"]) < ROUNDING
    assert distance(found["moody ring"], found["moody ddp"]) < ROUNDING


def test_frozen_and_idle_parameters_and_counters_are_as_they_should_be(found):
    one, other = found["own sync"]["weights"], found["own ddp"]["weights"]
    for name in ("fixed.weight", "idle", "codes"):
        np.testing.assert_array_equal(one[name], other[name])
    assert one["calls"] == other["calls"] == 52


def test_running_statistics_are_those_of_rank_0(found):
    """As DDP has it; `sync` averages. With one rank they are the same."""
    one, other = (found[name]["weights"] for name in ("sync 1", "ddp 1"))
    statistics = [name for name in one if "running" in name]
    assert statistics
    for name in statistics:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-5)
    assert max(np.abs(found["sync 2"]["weights"][n] - found["ddp 2"]["weights"][n]).max() for n in statistics) > 1e-3


@pytest.mark.parametrize(("name", "here"), [("elsewhere", "ddp 2"), ("elsewhere, bf16", "bf16 ddp")])
def test_a_module_in_memory_of_its_own_is_trained_evaluated_and_saved_alike(found, name, here):
    """The way of a GPU, with the processor as the device: a copy is trained, and brought back after every epoch."""
    assert ends_agree(found[name])
    assert found[name]["elsewhere"], "the module was our own"
    assert distance(found[here], found[name]) < ROUNDING
    for part in ("train_loss", "test_loss", "test_accuracy"):
        assert found[name]["ends"][0][part] == pytest.approx(found[here]["ends"][0][part], rel=1e-4)
    one, other = found[here]["weights"], found[name]["weights"]
    for statistic in (key for key in one if "running" in key or "num_" in key):
        np.testing.assert_allclose(one[statistic], other[statistic], rtol=1e-5, atol=1e-6)


def test_metrics_are_global(found):
    (one,), (other,) = found["plain sync"]["metrics"], found["plain ddp"]["metrics"]
    for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "lr"):
        assert other[name] == pytest.approx(one[name], rel=1e-4)
    assert [row["samples"] for row in found["plain ddp"]["ranks"]] == [51 * 14 + 14, 51 * 14]


def test_contributions_add_up(found):
    shares = np.array(found["ddp 2"]["shares"])
    # All but the bias before batch norm, whose gradient is zero but for rounding. The last batch is all rank 0's.
    np.testing.assert_allclose(np.delete(shares, 1, axis=1)[:, :, 0], [[1.0] * 5, [0.0] * 5], atol=1e-5)


@pytest.mark.parametrize("peer", PEERS)
def test_all_ranks_stop_early_at_once(found, peer):
    ends = found[f"stopping {peer}"]["ends"]
    assert ends_agree(found[f"stopping {peer}"])
    assert 1 <= ends[0]["epochs"] < 5
    assert all("reached 0.2" in end["stopped_early"] for end in ends)


def test_mixed_precision(found):
    loss = found["plain ddp"]["ends"][0]["train_loss"]
    for name in ("bf16 ddp", "fp16"):
        assert ends_agree(found[name])
        assert found[name]["ends"][0]["train_loss"] == pytest.approx(loss, rel=0.05)
        assert found[name]["ends"][0]["train_loss"] != loss
    assert distance(found["bf16 sync"], found["bf16 ddp"]) < distance(found["bf16 sync"], found["plain sync"])


def test_mixed_precision_is_accelerates_own(found):
    one, other = found["bf16 accelerate"], found["bf16 ddp"]
    assert one["ends"][0]["train_loss"] == pytest.approx(other["ends"][0]["train_loss"], rel=1e-2)
    assert distance(one, other) < distance(one, found["plain accelerate"])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("Expected more than 1 value per channel when training, got input size [1, 9]", "use a larger --batch-size"),
        ("Expected to have finished reduction in the prior iteration before ...", "use --strategy sync"),
    ],
)
def test_what_torch_says_is_put_in_words_that_help(said, message):
    error = explained(RuntimeError(said))
    assert isinstance(error, UserError)
    assert message in str(error)
    other = RuntimeError("something else")
    assert explained(other) is other


def test_options_of_take_over_change_nothing():
    recipe = Recipe.from_options(
        strategy="ddp", ranks=3, device="cpu", respawn=False, max_restarts=0, stall_timeout=9.0
    )
    resolved = resolve(recipe)
    assert (resolved.ranks.shards, resolved.model.engine, resolved.strategy.allreduce, resolved.strategy.device) == (
        3,
        "torch",
        "native",
        "cpu",
    )
    assert resolve(resolved) == resolved  # the recipe that was written gives the same run
