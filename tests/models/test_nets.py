import numpy as np
import pytest

from unisono.errors import UserError
from unisono.models.nets import NETWORKS, build


def shapes(*given: object, **options: object) -> dict[str, tuple[int, ...]]:
    return dict(build(*given, **options).layout.shapes)


def test_linear_is_weights_and_a_bias():
    model = build("linear", 10, 1)
    assert model.layout.shapes == {"W": (10, 1), "b": (1,)}
    assert not model.classifies


def test_mlp():
    assert shapes("mlp:128,64", 784, 10) == {
        "0.W": (784, 128),
        "0.b": (128,),
        "2.W": (128, 64),
        "2.b": (64,),
        "4.W": (64, 10),
        "4.b": (10,),
    }
    assert shapes("mlp", 784, 10) == shapes("mlp:128,64", 784, 10)
    assert list(shapes("mlp:5", 3, 2, dropout=0.1)) == ["0.W", "0.b", "3.W", "3.b"]
    assert build("mlp", 784, 10).classifies


def test_bn_mlp():
    model = build("bn-mlp", 512, 20)
    assert model.layout.length == 512 * 32 + 32 + 2 * 32 + 32 * 20 + 20
    assert model.layout.shapes["1.gamma"] == (32,)
    assert model.buffers_layout.shapes == {"1.running_mean": (32,), "1.running_var": (32,)}
    assert build("bn-mlp:64", 512, 20).layout.shapes["0.W"] == (512, 64)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_starting_values_depend_on_the_generator_alone(name, dtype):
    def start(seed: int) -> tuple[np.ndarray, np.ndarray]:
        model = build(name, 6, 3)
        params = np.full(model.layout.length + 5, np.nan, dtype)
        buffers = np.full(model.buffers_layout.length + 5, np.nan, dtype)
        model.init(params, buffers, np.random.default_rng(seed))
        assert np.isnan(params[-5:]).all()
        return params[:-5], buffers[:-5]

    (params, buffers), (again, _), (other, _) = start(1), start(1), start(2)
    assert np.isfinite(params).all()
    assert np.isfinite(buffers).all()
    assert params.tobytes() == again.tobytes()
    assert params.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("spec", "activation", "gain"),
    [
        ("mlp:400", "relu", 6**0.5),
        ("mlp:400", "sigmoid", 4.0),
        ("mlp:400", "tanh", 3**0.5),
        ("bn-mlp:400", "relu", 1.0),
    ],
)
def test_starting_values_fill_their_range(spec, activation, gain):
    model = build(spec, 100, 20, activation)
    params, buffers = np.empty(model.layout.length), np.empty(model.buffers_layout.length)
    model.init(params, buffers, np.random.default_rng(0))
    views = model.layout.views(params)
    last = model.layout.names[-2].partition(".")[0]
    bounds = {"0.W": gain / 10, "0.b": 0.1, f"{last}.W": 1 / 20, f"{last}.b": 1 / 20}
    for name, bound in bounds.items():
        assert 0.85 * bound < views[name].max() <= bound
        assert -bound <= views[name].min() < -0.85 * bound


@pytest.mark.parametrize(
    ("given", "options", "says"),
    [
        ("mpl:128", {}, "unknown model 'mpl'"),
        ("", {}, "unknown model ''"),
        ("mlp:", {}, "model 'mlp:': '' is not"),
        ("mlp:128,", {}, "'128,' is not a list"),
        ("mlp:" + "9" * 5000, {}, "is not a list"),
        ("mlp:12x", {}, "'12x' is not a list"),
        ("mlp:-3", {}, "'-3' is not"),
        ("mlp:1.5", {}, "'1.5' is not"),
        ("mlp:0", {}, "'0' is not"),
        ("mlp: 5", {}, "' 5' is not"),
        ("linear:5", {}, "'linear:5'.*no hidden layer"),
        ("linear", {"dropout": 0.1}, "no hidden layer"),
        ("linear", {"activation": "relu"}, "no hidden layer"),
        ("mlp", {"activation": "rleu"}, "unknown activation 'rleu'"),
        ("mlp", {"dropout": 1.0}, "dropout is 1.0"),
        ("mlp", {"dropout": -0.5}, "dropout is -0.5"),
        ("mlp", {"dropout": float("nan")}, "dropout is nan"),
        ("mlp", {"outputs": 1}, "'mlp' for 4 features and 1 outputs"),
        ("bn-mlp", {"features": 0}, "0 features"),
        ("linear", {"outputs": 0}, "0 outputs"),
    ],
)
def test_mistakes_name_what_was_given(given, options, says):
    with pytest.raises(UserError, match=f"(?s){says}.*HINT: "):
        build(given, **({"features": 4, "outputs": 3} | options))
