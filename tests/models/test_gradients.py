"""Every hand-written backward against central differences, in float64."""

from collections.abc import Callable

import numpy as np
import pytest

from support.models.model_cases import FEATURES, LAYERS, NETWORKS, call, layer_state, run_layer, samples
from unisono.models.losses import MeanSquaredError, SoftmaxCrossEntropy

STEP = 1e-6
NEAR = {"rtol": 2e-6, "atol": 1e-6}


def differences(function: Callable[[], np.ndarray], array: np.ndarray) -> np.ndarray:
    """d function() / d array, element by element; the values of the function come first in the shape."""
    slopes = np.empty((*function().shape, *array.shape))
    for index in np.ndindex(array.shape):
        value = array[index]
        array[index] = value + STEP
        above = function().copy()
        array[index] = value - STEP
        slopes[..., *index] = (above - function()) / (2 * STEP)
        array[index] = value
    return slopes


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_goes_back_as_it_went_forward(name, batch):
    layer = LAYERS[name](3)
    rng = np.random.default_rng(batch)
    x = rng.normal(size=(2, batch, 3))
    params, buffers = layer_state(layer, np.float64, 7)
    dy = rng.normal(size=(2, batch, layer.width(3)))

    def value() -> np.ndarray:
        return (run_layer(layer, x, dy, (params, buffers)).y * dy).sum((1, 2))  # (k,)

    found = run_layer(layer, x, dy, (params, buffers))
    of_input = differences(value, x)  # (k, k, b, 3)
    for shard in range(2):
        np.testing.assert_allclose(found.dx[shard], of_input[shard, shard], **NEAR)
        assert not of_input[shard, 1 - shard].any(), "a shard depends on another one's samples"
    np.testing.assert_allclose(found.grads, differences(value, params), **NEAR)


@pytest.mark.parametrize("loss", [SoftmaxCrossEntropy(), MeanSquaredError()])
def test_a_loss_gives_its_own_gradient(loss):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 3, 4))
    y = rng.integers(0, 4, (2, 3)) if loss.classifies else rng.normal(size=z.shape)
    opened = loss.open(z.shape, z.dtype)

    def value() -> np.ndarray:
        opened.forward(z, y)
        return 0.3 * opened.sums[:, 0]  # (k,)

    expected = differences(value, z).sum(0)  # (k, k, b, 4): zero between shards
    opened.forward(z, y)
    np.testing.assert_allclose(opened.backward(0.3), expected, **NEAR)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_gives_the_gradient_of_its_scaled_loss(name):
    model = NETWORKS[name]()
    params, buffers = np.empty(model.layout.length), np.empty(model.buffers_layout.length)
    model.init(params, buffers, np.random.default_rng(3))
    model.bind(params, buffers)
    x, y = samples(model, (2, 4, FEATURES), dtype=np.float64)
    grads = call(model, x, y).grads
    chosen = np.random.default_rng(4).choice(len(params), min(40, len(params)), replace=False)
    for place in chosen:
        slope = differences(lambda: 0.125 * call(model, x, y).sums[0], params[place : place + 1])  # (k, 1)
        np.testing.assert_allclose(grads[:, place], slope[:, 0], **NEAR)
