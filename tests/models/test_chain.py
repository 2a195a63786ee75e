"""Calls of different shapes, buffers, dropout and sums, through whole networks."""

import numpy as np
import pytest

from support.models.model_cases import FEATURES, NETWORKS, call, ready, samples
from unisono.errors import UserError
from unisono.models.nets import build


@pytest.mark.parametrize("name", NETWORKS)
def test_a_smaller_shard_at_the_end_changes_nothing_for_the_others(name):
    model, fresh = ready(NETWORKS[name]()), ready(NETWORKS[name]())
    x, y = samples(model, (3, 8, FEATURES))
    usual = call(model, x, y)
    ragged = call(model, x[:1, :3], y[:1, :3])
    again = call(model, x, y)
    assert usual.grads.tobytes() == again.grads.tobytes()
    assert usual.sums.tobytes() == again.sums.tobytes()
    assert ragged.grads.tobytes() == call(fresh, x[:1, :3], y[:1, :3]).grads.tobytes()


def test_gradients_follow_the_array_that_is_given():
    model = ready(NETWORKS["mlp"]())
    x, y = samples(model, (2, 8, FEATURES))
    first, second = (np.zeros((2, model.layout.length), np.float32) for _ in range(2))
    model.loss_and_grad(x, y, first, 1.0)
    kept = first.copy()
    model.loss_and_grad(x, y, second, 2.0)
    assert first.tobytes() == kept.tobytes()
    assert second.tobytes() == (2 * kept).tobytes()


def test_calls_of_one_shape_use_the_same_memory():
    model = ready(NETWORKS["bn-mlp"]())
    x, y = samples(model, (2, 8, FEATURES))
    first, second = (np.zeros((2, model.layout.length), np.float32) for _ in range(2))
    assert model.loss_and_grad(x, y, first, 1.0) is model.loss_and_grad(x, y, second, 1.0)
    assert model.evaluate(x, y) is model.evaluate(x, y)
    assert model.evaluate(x[:1], y[:1]) is not model.evaluate(x, y)


def test_parameters_are_read_where_they_lie():
    model = NETWORKS["bn-mlp"]()
    params, buffers = np.empty(model.layout.length, np.float32), np.empty(model.buffers_layout.length, np.float32)
    model.init(params, buffers, np.random.default_rng(0))
    model.bind(params, buffers)
    x, y = samples(model, (1, 8, FEATURES))
    before = call(model, x, y)
    params[...] = params[::-1].copy()
    buffers += 1
    after = call(model, x, y)
    assert before.sums[0] != after.sums[0]
    assert before.evaluated[0] != after.evaluated[0]
    fresh = NETWORKS["bn-mlp"]()
    fresh.bind(params, buffers)
    assert call(fresh, x, y).grads.tobytes() == after.grads.tobytes()


def test_each_shard_starts_from_the_committed_buffers():
    model = NETWORKS["bn-mlp"]()
    params, buffers = np.empty(model.layout.length), np.empty(model.buffers_layout.length)
    model.init(params, buffers, np.random.default_rng(0))
    model.bind(params, buffers)
    x, y = samples(model, (2, 8, FEATURES), dtype=np.float64)
    views = model.layout.views(params)
    hidden = x @ views["0.W"] + views["0.b"]
    for _ in range(2):  # the second call starts from the same committed values, not from the first one's
        new = model.buffers_layout.views(call(model, x, y).new_buffers)
        np.testing.assert_allclose(new["1.running_mean"], 0.1 * hidden.mean(1))
        np.testing.assert_allclose(new["1.running_var"], 0.9 + 0.1 * hidden.var(1, ddof=1))
    assert model.buffers_layout.views(buffers)["1.running_var"].tolist() == [1.0] * 32


def test_a_shard_of_one_sample_leaves_the_running_variance():
    model = ready(NETWORKS["bn-mlp"]())
    new = model.buffers_layout.views(call(model, *samples(model, (2, 1, FEATURES))).new_buffers)
    assert (new["1.running_var"] == 1).all()
    assert (new["1.running_mean"] != 0).all()


def masks(seeds: list[int], rate: float = 0.25, width: int = 400) -> np.ndarray:
    """What dropout made of a layer of ones, one row a shard: read from the gradient of the last layer's weights."""
    model = build(f"mlp:{width}", 1, 2, "relu", rate)
    params = np.empty(model.layout.length)
    views = model.layout.views(params)
    for name, value in {"0.W": 0.0, "0.b": 1.0, "3.W": 0.0, "3.b": 0.0}.items():
        views[name][...] = value
    model.bind(params, np.empty(0))
    grads = np.empty((len(seeds), model.layout.length))
    x, y = np.zeros((len(seeds), 1, 1)), np.zeros((len(seeds), 1), int)
    model.loss_and_grad(x, y, grads, 1.0, lambda j: np.random.default_rng(seeds[j]))
    return model.layout.views(grads)["3.W"][:, :, 1] / 0.5  # the probability of class 1 is 1/2


def test_dropout_keeps_the_expected_share_and_scales_it():
    (mask,) = masks([1])
    assert np.isin(mask, [0, 1 / 0.75]).all()
    assert 0.18 < (mask == 0).mean() < 0.32


def test_dropout_belongs_to_the_shard():
    first, second, again = masks([1, 2, 1])
    assert (first != second).any()
    assert (first == again).all()
    assert (masks([2, 1]) == [second, first]).all()


def test_two_dropouts_draw_different_masks_from_one_generator():
    model = ready(build("mlp:50,50", FEATURES, 2, "tanh", 0.5))
    asked = []

    def noise(shard: int) -> np.random.Generator:
        asked.append(shard)
        return np.random.default_rng(shard)

    x, y = samples(model, (3, 1, FEATURES))
    grads = np.empty((3, model.layout.length), np.float32)
    model.loss_and_grad(x, y, grads, 1.0, noise)
    assert asked == [0, 1, 2]
    views = model.layout.views(grads)
    dropped_first = (views["3.W"] == 0).all(2)  # (k, 50): inputs of the second hidden layer
    dropped_second = (views["6.W"] == 0).all(2)  # (k, 50): inputs of the last layer
    assert (dropped_first != dropped_second).any()


def test_generators_are_asked_for_only_where_they_are_needed():
    model = ready(NETWORKS["mlp, gelu, dropout"]())
    x, y = samples(model, (2, 3, FEATURES))
    grads = np.empty((2, model.layout.length), np.float32)
    model.evaluate(x, y)
    with pytest.raises(TypeError, match="noise"):
        model.loss_and_grad(x, y, grads, 1.0)
    model = ready(NETWORKS["mlp"]())
    x, y = samples(model, (2, 3, FEATURES))
    model.loss_and_grad(x, y, np.empty((2, model.layout.length), np.float32), 1.0)


def test_correct_answers_are_counted_and_ties_are_not_all_right():
    model = build("mlp:4", FEATURES, 3)
    params = np.zeros(model.layout.length, np.float32)
    model.bind(params, np.empty(0, np.float32))
    y = np.array([[0, 1, 2, 0], [1, 1, 2, 2]])
    x = np.ones((2, 4, FEATURES), np.float32)
    assert model.evaluate(x, y).correct.tolist() == [2, 0]  # all outputs equal: the first class is the answer
    model.layout.views(params)["2.b"][...] = [0, 0, 1]
    assert model.evaluate(x, y).correct.tolist() == [1, 2]
    assert model.loss_and_grad(x, y, np.empty((2, model.layout.length), np.float32), 1.0).correct.tolist() == [1, 2]


def test_large_numbers_overflow_nowhere_and_non_finite_ones_show_in_the_loss():
    model = ready(build("mlp:8", FEATURES, 3))
    x, y = samples(model, (2, 4, FEATURES))
    x *= 1e6
    found = call(model, x, y)
    assert np.isfinite(found.grads).all()
    assert np.isfinite(found.sums).all()
    x[1, 2, 3] = np.nan
    found = call(model, x, y)
    assert np.isfinite(found.sums[0]).tolist() == [True, False]
    assert np.isfinite(found.grads[0]).all()


def test_arrays_that_do_not_fit():
    model = ready(NETWORKS["mlp"]())
    grads = np.empty((1, model.layout.length), np.float32)
    for shape in [(1, 4, FEATURES + 1), (4, FEATURES), (1, 0, FEATURES)]:
        with pytest.raises(UserError, match=f"{FEATURES} features.*{shape[-1]}"):
            model.loss_and_grad(np.zeros(shape, np.float32), np.zeros(shape[:-1], int), grads, 1.0)
    x, y = samples(model, (2, 4, FEATURES))
    with pytest.raises(ValueError, match="1 rows for 2 shards"):
        model.loss_and_grad(x, y, grads, 1.0)
