"""Shards computed together against shards computed alone: the bits must be the same, for everything rests on it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.model_cases import FEATURES, LAYERS, NETWORKS, call, layer_state, ready, run_layer, samples
from unisono.models.losses import MeanSquaredError, SoftmaxCrossEntropy

BATCHES = [1, 2, 5, 32, 64]


def same_bits(together: object, alone: list[object]) -> None:
    """Every array of a dataclass: row j of the one call = the only row of the j-th call."""
    for name, array in vars(together).items():
        axis = 1 if name in ("sums", "evaluated") else 0
        expected = np.concatenate([getattr(one, name) for one in alone], axis)
        assert array.tobytes() == expected.tobytes(), name


@given(
    name=st.sampled_from(list(LAYERS)),
    shards=st.integers(1, 8),
    batch=st.sampled_from(BATCHES),
    width=st.sampled_from([1, 2, 3, 20, 32, 33, 130]),
)
@settings(max_examples=150, deadline=None)
def test_layers(name, shards, batch, width):
    layer = LAYERS[name](width)
    rng = np.random.default_rng(batch * width)
    x = rng.normal(size=(shards, batch, width)).astype(np.float32)
    dy = rng.normal(size=(shards, batch, layer.width(width))).astype(np.float32)
    state = layer_state(layer, np.float32, 5)
    alone = [run_layer(layer, x[j : j + 1].copy(), dy[j : j + 1], state, j) for j in range(shards)]
    same_bits(run_layer(layer, x, dy, state), alone)


@given(
    loss=st.sampled_from([SoftmaxCrossEntropy(), MeanSquaredError()]),
    shards=st.integers(1, 8),
    batch=st.sampled_from(BATCHES),
    outputs=st.sampled_from([1, 2, 3, 10, 20, 130, 1000]),
)
@settings(max_examples=80, deadline=None)
def test_losses(loss, shards, batch, outputs):
    rng = np.random.default_rng(batch * outputs)
    z = rng.normal(size=(shards, batch, outputs)).astype(np.float32)
    y = rng.integers(0, outputs, (shards, batch)) if loss.classifies else rng.normal(size=z.shape).astype(np.float32)

    def ask(start: int, stop: int) -> tuple[bytes, ...]:
        opened = loss.open((stop - start, *z.shape[1:]), z.dtype)
        opened.forward(z[start:stop].copy(), y[start:stop].copy())
        return opened.sums.tobytes(), opened.backward(0.7).tobytes()

    alone = [ask(j, j + 1) for j in range(shards)]
    assert ask(0, shards) == tuple(b"".join(parts) for parts in zip(*alone, strict=True))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, batch):
    model = ready(NETWORKS[name]())
    x, y = samples(model, (8, batch, FEATURES))
    alone = [call(model, x[j : j + 1], y[j : j + 1], first_shard=j) for j in range(8)]
    for shards in range(1, 9):
        start = 8 - shards
        together = call(model, x[start:], y[start:], first_shard=start)
        same_bits(together, alone[start:])


def test_rows_of_the_gradient_may_lie_apart():
    model = ready(NETWORKS["bn-mlp"]())
    x, y = samples(model, (3, 5, FEATURES))
    length = model.layout.length
    slots = np.full((3, 2 * length + 7), np.nan, np.float32)
    model.loss_and_grad(x, y, slots[:, : length + 3], 0.125)
    assert slots[:, :length].tobytes() == call(model, x, y).grads.tobytes()
    assert np.isnan(slots[:, length:]).all(), "padding belongs to nobody"


def test_strides_and_types_of_the_input_do_not_change_the_bits():
    model = ready(NETWORKS["mlp"]())
    x, y = samples(model, (3, 5, FEATURES))
    expected = call(model, x, y)
    wide = np.zeros((3, 5, 2 * FEATURES), np.float32)
    wide[:, :, ::2] = x
    for other in (wide[:, :, ::2], np.asfortranarray(x), x.astype(np.float64)):
        grads = np.empty((3, model.layout.length), np.float32)
        model.loss_and_grad(other, y.astype(np.uint8), grads, 0.125)
        assert grads.tobytes() == expected.grads.tobytes()
