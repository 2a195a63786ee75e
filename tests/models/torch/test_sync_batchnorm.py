"""Synchronised batch norm: shards against one big batch, and what may go wrong among shards that wait for others."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.models.engine_cases import bound, samples
from support.models.sync_cases import CASES, IMAGES, ROWS, gradients, images, rows, synced
from unisono.models.base import Part

CUTS = {
    "even": (3, 4, 0),
    "ragged": (3, 4, 2),
    "one sample each": (9, 1, 0),
    "one shard": (1, 12, 0),
    "and one": (2, 5, 1),
}
"""Full shards, their size, the size of a smaller last one."""


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("case", CASES)
def test_shards_have_the_loss_and_the_gradients_of_one_big_batch(case, cut):
    make, task = CASES[case]
    count, size, rest = CUTS[cut]
    total = count * size + rest
    x, y = samples(task, 1, total)
    whole, params, _ = bound(make, task)
    expected = gradients(whole, 1)
    one = whole.loss_and_grad(x, y, expected, 1 / total)

    model, _, _ = bound(make, task, sync_batchnorm=True)
    ends = [0, count * size, total] if rest else [0, total]
    shapes = [(count, size), (1, rest)]
    parts = []
    for start, stop, (k, b) in zip(ends, ends[1:], shapes, strict=False):
        part_x, part_y = x[0, start:stop].reshape(k, b, -1), y[0, start:stop].reshape(k, b)
        parts.append(Part(part_x, part_y, gradients(model, k)))
    for _ in range(2):  # the second time threads and plans are there
        found = model.loss_and_grad_together(parts, 1 / total)
        assert abs(sum(sums.loss_sum.sum() for sums in found) - one.loss_sum[0]) / total < 1e-5
        assert sum(sums.correct.sum() for sums in found) == one.correct[0]
        together = sum(part.grads.astype(np.float64).sum(0) for part in parts)
        np.testing.assert_allclose(together, expected[0], rtol=1e-5, atol=1e-5)
        left = np.concatenate([sums.new_buffers for sums in found])
        assert len({row.tobytes() for row in left}) == 1  # every shard has the same
        wanted = whole.named(params, one.new_buffers[0])[1]
        for name, values in model.named(params, left[0])[1].items():
            np.testing.assert_allclose(values, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_running_statistics_are_taken_not_averaged():
    model = synced(rows)
    assert model.unaveraged == model.buffers_layout.length
    assert model.exchange_width == 1 + 2 * 16


def test_evaluation_is_that_of_the_plain_module():
    x, y = samples(ROWS, 2, 7)
    model, plain = synced(rows), bound(rows, ROWS)[0]
    found, wanted = model.evaluate(x, y), plain.evaluate(x, y)
    assert found.loss_sum.tobytes() == wanted.loss_sum.tobytes()


def test_a_batch_of_one_value_is_normalised_to_zero():
    model, params, buffers = bound(rows, ROWS, sync_batchnorm=True)
    x, y = samples(ROWS, 1, 1)
    grads = gradients(model, 1)
    sums = model.loss_and_grad(x, y, grads, 1.0)
    assert np.isfinite(grads).all()
    state = model.named(params, sums.new_buffers[0])[1]
    assert np.array_equal(state["1.running_var"], model.named(params, buffers)[1]["1.running_var"])
    assert state["1.num_batches_tracked"] == 1


def test_frozen_statistics_stay_frozen():
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = rows()

        def train(self, mode: bool = True) -> nn.Module:
            super().train(mode)
            self.body[1].eval()
            return self

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    model, params, buffers = bound(Half, ROWS, sync_batchnorm=True)
    x, y = samples(ROWS, 3, 4)
    sums = model.loss_and_grad(x, y, gradients(model, 3), 1.0)
    before, after = (model.named(params, each)[1] for each in (buffers, sums.new_buffers[0]))
    assert np.array_equal(before["body.1.running_mean"], after["body.1.running_mean"])
    assert not np.array_equal(before["body.4.running_mean"], after["body.4.running_mean"])


def test_bf16_is_close_to_one_big_batch():
    x, y = samples(IMAGES, 1, 24)
    whole, model = bound(images, IMAGES, precision="bf16")[0], synced(images, IMAGES, precision="bf16")
    expected, found = gradients(whole, 1), gradients(model, 6)
    whole.loss_and_grad(x, y, expected, 1 / 24)
    model.loss_and_grad(x.reshape(6, 4, -1), y.reshape(6, 4), found, 1 / 24)
    error = np.linalg.norm(found.sum(0) - expected) / np.linalg.norm(expected)
    assert error < 0.03
    assert torch.is_autocast_cache_enabled()


def test_it_is_something_else_than_plain_batch_norm():
    """Else the tests above could not fail."""
    x, y = samples(ROWS, 4, 3)
    found, plain = gradients(synced(rows), 4), gradients(bound(rows, ROWS)[0], 4)
    synced(rows).loss_and_grad(x, y, found, 1 / 12)
    bound(rows, ROWS)[0].loss_and_grad(x, y, plain, 1 / 12)
    assert np.abs(found.sum(0) - plain.sum(0)).max() > 1e-3
