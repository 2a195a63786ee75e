"""Shards that are computed together: each has what is its own, and what one of them does wrong ends all."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.models.engine_cases import CLASSES, FEATURES, bound, noise, samples
from support.models.sync_cases import ROWS, gradients, rows, synced
from unisono.errors import UserError
from unisono.models.torch.concurrent_shards import ConcurrentShards, ShardState
from unisono.models.torch.model import TorchModel
from unisono.models.torch.random_state import seed_from


def test_draws_and_buffers_are_the_shards_own_across_meetings():
    seen: list[tuple[float, list[float]]] = []

    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.out = nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES)
            self.register_buffer("mean", torch.zeros(FEATURES))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            draws = [torch.rand(1).item()]
            self.mean = 0.5 * self.mean + x.mean(0)  # another tensor in its place
            self.count += 1
            z = self.norm(x)
            self.count += 10
            draws.append(torch.rand(1).item())
            seen.append((x[0, 0].item(), draws))
            return self.out(z + self.mean)

    model, params, _ = bound(Drawing, ROWS, sync_batchnorm=True)
    seen.clear()
    x, y = samples(ROWS, 4, 3)
    sums = model.loss_and_grad(x, y, gradients(model, 4), 1.0, noise())
    drawn = dict(seen)
    for shard in range(4):
        seed_from(noise()(shard))
        assert drawn[x[shard, 0, 0].item()] == [torch.rand(1).item(), torch.rand(1).item()]
        state = model.named(params, sums.new_buffers[shard])[1]
        np.testing.assert_allclose(state["mean"], x[shard].mean(0), atol=1e-6)
        assert state["count"] == 11


class Tripping(nn.Module):
    """Does something else for a sample that starts with a large number."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.body, self.other = rows(), nn.BatchNorm1d(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.body(x)
        odd = x[0, 0].item() > 100
        if odd and self.what == "raises":
            raise ZeroDivisionError("in a forward")
        if odd and self.what == "raises in backward":
            z.register_hook(_trip)
        if odd != (self.what == "skips"):
            return z if self.what.startswith("raises") else self.other(z)
        return z


def _trip(gradient: Tensor) -> None:
    raise ZeroDivisionError("in a backward")


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("raises", ZeroDivisionError, "in a forward"),
        ("raises in backward", ZeroDivisionError, "in a backward"),
        ("skips", UserError, r"(?s)do not pass the same batch norms.*HINT: leave it out \(--sync-batchnorm"),
        ("adds", UserError, "do not pass the same batch norms"),
    ],
)
@pytest.mark.parametrize("odd", [0, 1, 3])
def test_what_one_shard_does_wrong_ends_all_and_is_told(what, error, message, odd):
    model = synced(lambda: Tripping(what))
    x, y = samples(ROWS, 4, 3)
    x[odd, 0, 0] = 1000
    with pytest.raises(error, match=message):
        model.loss_and_grad(x, y, gradients(model, 4), 1.0)
    x[odd, 0, 0] = 1
    grads = gradients(model, 4)
    model.loss_and_grad(x, y, grads, 1.0)  # as if nothing had happened
    assert np.isfinite(grads).all()


@pytest.mark.parametrize(
    ("make", "precision", "message"),
    [
        (lambda: nn.Linear(FEATURES, CLASSES), "fp32", "Linear has no batch norm\nHINT: leave --sync-batchnorm out"),
        (rows, "fp16", "(?s)--precision fp16: each shard.*HINT: use --precision bf16"),
    ],
)
def test_what_cannot_be_synchronised_is_refused(make, precision, message):
    with pytest.raises(UserError, match=message):
        TorchModel(make, ROWS, precision, sync_batchnorm=True)


def test_a_layer_held_elsewhere_is_synchronised_too():
    class Holding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.out = nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES)
            self.steps = [self.norm, self.out]

        def forward(self, x: Tensor) -> Tensor:
            for step in self.steps:
                x = step(x)
            return x

    model = synced(Holding)
    x, y = samples(ROWS, 4, 1)
    sums = model.loss_and_grad(x, y, gradients(model, 4), 1.0)  # one sample each: torch's would refuse
    assert len(set(sums.loss_sum.tolist())) == 4


def test_a_shard_has_the_same_bits_in_whichever_thread_it_is_computed():
    """A new thread has MKL's own number of threads until torch's is asked for; on a machine of one core they agree."""
    module = nn.BatchNorm1d(3)
    together, shard_states = ConcurrentShards(module, "fp32"), [ShardState(module, frozenset()) for _ in range(3)]
    rng = torch.Generator().manual_seed(0)
    x, weight = torch.randn(6, 16, generator=rng), torch.randn(211, 16, generator=rng)
    torch.set_num_threads(1)
    found: list[Tensor] = []
    together.run([lambda: found.append(nn.functional.linear(x, weight))] * 3, shard_states, None)
    assert all(torch.equal(one, found[0]) for one in found)
