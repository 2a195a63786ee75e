"""linear, mlp and bn-mlp are the networks of the NumPy engine; torch's autograd confirms their backward."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from support.models.model_cases import call, samples
from unisono.models import activations as numpy_activations
from unisono.models import nets as numpy_nets
from unisono.models.batchnorm import BatchNorm
from unisono.models.layers import Room
from unisono.models.nets import torch_state
from unisono.models.torch.nets import build
from unisono.models.torch.nets.layers import BatchNorm1d

pytestmark = pytest.mark.forked


CASES = [
    ("linear", "", 3, ""),
    ("mlp", "16,9", 5, ""),
    ("mlp", "", 10, "relu"),
    ("mlp", "7", 5, "tanh"),
    ("mlp", "8", 3, "gelu"),
    ("bn-mlp", "", 20, ""),
    ("bn-mlp", "8,7", 4, "tanh"),
]


def test_numpy_networks_compute_what_torch_derives() -> None:
    """Losses, gradients and buffers in the middle of training; names are those of `torch_state`."""
    for (name, args, outputs, activation), dtype in product(CASES, (np.float64, np.float32)):
        spec = f"{name}:{args}" if args else name
        near = {"rtol": 2e-5, "atol": 2e-6} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}
        if activation == "gelu" and dtype == np.float64:
            near = {"rtol": 1e-6, "atol": 1e-7}  # what activations.py promises
        near["err_msg"] = f"{spec} {activation} {dtype.__name__}"
        model, rng = numpy_nets.build(spec, 12, outputs, activation), np.random.default_rng(8)
        params = rng.normal(scale=0.5, size=model.layout.length).astype(dtype)
        buffers = rng.uniform(0.5, 2, model.buffers_layout.length).astype(dtype)
        model.bind(params, buffers)
        x, y = samples(model, (3, 6, 12), dtype=dtype)
        found = call(model, x, y)
        net = build(name, args, (3, 4), outputs, activation, 0.0).to(torch.from_numpy(x).dtype)
        ours = torch_state(model.layout.views(params))
        assert [*ours] == [key for key, _ in net.named_parameters()], spec
        assert [array.shape for array in ours.values()] == [tuple(p.shape) for p in net.parameters()], spec
        state = ours | torch_state(model.buffers_layout.views(buffers))
        state |= {key: np.array(0) for key in net.state_dict() if key.endswith("num_batches_tracked")}
        loss = functional.cross_entropy if model.classifies else functional.mse_loss
        for shard, (samples_in, labels) in enumerate(zip(torch.from_numpy(x), torch.from_numpy(y), strict=True)):
            net.load_state_dict({key: torch.from_numpy(array) for key, array in state.items()}, strict=True)
            net.zero_grad()
            tested = net.eval()(samples_in.reshape(6, 3, 4))
            trained = loss(net.train()(samples_in.reshape(6, 3, 4)), labels) * 6
            (trained * 0.125).backward()
            correct = (tested.argmax(1) == labels).sum().item() if model.classifies else 0
            np.testing.assert_allclose(found.evaluated[:, shard], [loss(tested, labels).item() * 6, correct], **near)
            np.testing.assert_allclose(found.sums[0, shard], trained.item(), **near)
            for key, array in torch_state(model.layout.views(found.grads[shard])).items():
                np.testing.assert_allclose(net.get_parameter(key).grad, array, **near)
            for key, array in torch_state(model.buffers_layout.views(found.new_buffers[shard])).items():
                np.testing.assert_allclose(net.get_buffer(key), array, **near)


def test_dropout_takes_the_same_places_as_in_numpy() -> None:
    for name in ("mlp", "bn-mlp"):
        ours = numpy_nets.build(f"{name}:8,7", 12, 4, dropout=0.5)
        net = build(name, "8,7", (12,), 4, "", 0.5)
        assert [*torch_state(ours.layout.views(np.zeros(ours.layout.length)))] == [
            key for key, _ in net.named_parameters()
        ]


def test_starting_values_fill_numpys_ranges() -> None:
    for name, activation in (("mlp", "relu"), ("mlp", "sigmoid"), ("mlp", "tanh"), ("bn-mlp", "relu")):
        torch.manual_seed(0)
        net = build(name, "400", (100,), 200, activation, 0.0)
        gain = numpy_activations.GAINS[activation] if name == "mlp" else 1.0
        last = f"{len(net) - 1}."
        bounds = {"0.weight": gain / 10, "0.bias": 0.1, last + "weight": 1 / 20, last + "bias": 1 / 20}
        for key, bound in bounds.items():
            value = net.get_parameter(key)
            assert 0.85 * bound < value.max() <= bound * (1 + 1e-6), (name, activation, key)
            assert -bound * (1 + 1e-6) <= value.min() < -0.85 * bound, (name, activation, key)


def test_batch_norm_of_one_sample_is_numpys() -> None:
    rng = np.random.default_rng(0)
    params, buffers = rng.normal(size=10).astype(np.float32), rng.uniform(1, 2, 10).astype(np.float32)
    x = rng.normal(size=(1, 1, 5)).astype(np.float32)
    new_buffers, grads = np.empty((1, 10), np.float32), np.empty((1, 10), np.float32)
    opened = BatchNorm(5).open(Room(x.shape, params, buffers, new_buffers, []))
    opened.bind_grads(grads)
    y = opened.forward(x).copy()
    dx = opened.backward(np.ones_like(x))
    norm = BatchNorm1d(5)
    state = {"weight": params[:5], "bias": params[5:], "running_mean": buffers[:5], "running_var": buffers[5:]}
    state |= {"num_batches_tracked": np.array(7)}
    norm.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()})
    theirs = torch.from_numpy(x[0]).requires_grad_()
    found = norm(theirs)
    found.sum().backward()
    np.testing.assert_array_equal(found.detach(), y[0])
    np.testing.assert_array_equal(theirs.grad, dx[0])
    np.testing.assert_array_equal(np.concatenate([norm.weight.grad, norm.bias.grad]), grads[0])
    np.testing.assert_allclose(np.concatenate([norm.running_mean, norm.running_var]), new_buffers[0], rtol=1e-6)
    assert norm.num_batches_tracked.item() == 8
    norm.eval()
    assert torch.equal(norm(theirs), nn.BatchNorm1d.forward(norm, theirs))
    assert norm.num_batches_tracked.item() == 8


def test_batch_norm_of_one_sample_is_computed_in_16_bits() -> None:
    """A ragged end may leave a shard of one: such a run ended in the middle."""
    for dtype in (torch.bfloat16, torch.float16):
        net = build("bn-mlp", "5", (3,), 2, "", 0.0)
        mean = net.get_buffer("1.running_mean")
        with torch.autocast("cpu", dtype):
            net(torch.ones(1, 3)).sum().backward()
        assert mean.dtype == torch.float32
        assert mean.abs().sum() > 0
        assert net.get_parameter("1.bias").grad is not None
