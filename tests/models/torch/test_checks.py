"""Graphs that would leave parameters untrained are refused; gradients may be sparse."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from support.models.engine_cases import CLASSES, FEATURES, ROWS, bound, call, samples
from unisono.errors import UserError
from unisono.models.torch.checks import GraphCheck, check_graph
from unisono.models.torch.model import TorchModel
from unisono.strategies.external.module_placement import probe

# Here, and not in the first test: it imports parts of torch that write to the environment.
checkpoint(nn.Identity(), torch.ones(1, requires_grad=True), use_reentrant=False)

REFUSED = r"re-entrant checkpoint.*\nHINT: give checkpoint\(\.\.\., use_reentrant=False\)"


class Saving(nn.Module):
    """Computes its middle again in the backward; `late`: not when it is tried out with two samples."""

    def __init__(self, *, reentrant: bool, deep: bool = False, late: bool = False) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(FEATURES, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.reentrant, self.deep, self.late = reentrant, deep, late

    def forward(self, x: Tensor) -> Tensor:
        if self.late and len(x) <= 2:
            return self.last(self.middle(self.first(x)))
        if self.deep:  # behind a layer that is trained: torch itself finds it
            return self.last(checkpoint(self.middle, self.first(x), use_reentrant=self.reentrant))
        x = x.detach().requires_grad_()
        inner = nn.Sequential(self.first, self.middle)
        return self.last(checkpoint(inner, x, use_reentrant=self.reentrant))


def ready(make, precision: str = "fp32") -> TorchModel:
    return bound(make, ROWS, precision=precision)[0]


@pytest.mark.parametrize("deep", [False, True])
def test_a_reentrant_checkpoint_is_found_before_anything_starts(deep):
    with pytest.raises(UserError, match=REFUSED):
        TorchModel(lambda: Saving(reentrant=True, deep=deep), ROWS)


@pytest.mark.parametrize("deep", [False, True])
def test_a_reentrant_checkpoint_is_found_when_it_is_first_used(deep):
    model = ready(lambda: Saving(reentrant=True, deep=deep, late=True))
    with pytest.raises(UserError, match=REFUSED):
        call(model, *samples(ROWS, 1, 4))


def test_other_checkpoints_give_the_gradients_of_none():
    x, y = samples(ROWS, 2, 4)
    saving, _ = call(ready(lambda: Saving(reentrant=False)), x, y)
    plain, _ = call(ready(lambda: Saving(reentrant=False, late=True)), x[:, :2].copy(), y[:, :2].copy())
    assert np.isfinite(saving).all()
    assert (np.abs(saving).sum(1) > 0).all()
    both, _ = call(ready(lambda: Saving(reentrant=False)), x[:, :2].copy(), y[:, :2].copy())
    np.testing.assert_allclose(both, plain, rtol=1e-6)


def test_a_probe_finds_it():
    module = Saving(reentrant=True)
    with pytest.raises(UserError, match=REFUSED):
        probe(module, lambda: module(torch.ones(4, FEATURES)).sum())


def test_a_loss_without_parameters_is_refused_and_graphs_are_walked_only_with_a_reason(monkeypatch):
    walked = []
    monkeypatch.setattr("unisono.models.torch.checks.check_graph", walked.append)
    watch, loss = GraphCheck(2), torch.ones((), requires_grad=True) * 2
    for unused, walks in (([False, True], 1), ([False, True], 1), ([False, False], 1), ([True, False], 2)):
        watch.check(loss, np.array(unused))
        assert len(walked) == walks
    with pytest.raises(UserError, match="depends on no parameter that is trained"):
        GraphCheck(2).check(loss, np.array([True, True]))


def test_a_graph_with_branches_is_walked_once():
    w = torch.ones(2, requires_grad=True)
    for _ in range(200):  # 2^200 ways from its end to its start
        w = w + w
    check_graph(w)


class Sparse(nn.Module):
    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(4, CLASSES, sparse=sparse)
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.table(torch.arange(len(x)) % 3)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_sparse_gradients_are_those_of_dense_ones(precision):
    x, y = samples(ROWS, 2, 5)
    sparse, _ = call(ready(lambda: Sparse(sparse=True), precision), x, y)
    dense, _ = call(ready(lambda: Sparse(sparse=False), precision), x, y)
    np.testing.assert_allclose(sparse, dense, rtol=1e-6, atol=1e-8)
    assert np.abs(dense).sum() > 0
