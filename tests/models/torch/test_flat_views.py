"""Where a module's tensors lie: tied once, frozen and integers bit by bit, and files that load into the module."""

import numpy as np
import pytest
import torch

from support.models.engine_cases import CASES, CLASSES, FEATURES, PLACES, ROWS, VOCABULARY, bound, call, ready, samples
from unisono.errors import UserError
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel
from unisono.rng import generator
from unisono.storage import weights


def test_tied_parameters_are_there_once():
    model, params, _ = ready("tied")
    assert model.layout.shapes == {"embed.weight": (VOCABULARY, 8), "mix.weight": (8, 8), "mix.bias": (8,)}
    assert model.module.head.weight.data_ptr() == model.module.embed.weight.data_ptr() == params.ctypes.data
    assert model.state_names["head.weight"] == model.state_names["embed.weight"] == "embed.weight"
    assert "mask" not in model.state_names


def test_constants_are_taken_not_averaged():
    """(x + x + x) / 3 is not x: a table of positions must not drift."""
    model, _, _ = ready("tied")
    assert model.buffers_layout.shapes == {"places": (PLACES * 8,), "mask": (2,)}
    assert model.unaveraged == model.buffers_layout.length
    assert model.fixed == 0


def test_frozen_parameters_are_kept_but_not_trained():
    model, _, buffers = ready("frozen")
    assert [name.split(".")[0] for name in model.layout.names] == ["idle", "rare", "top", "top"]
    assert model.buffers_layout.shapes == {"base.weight": (12, FEATURES), "base.bias": (12,)}
    assert model.unaveraged == model.fixed == model.buffers_layout.length
    x, y = samples(CASES["frozen"][1], 3, 4)
    _, sums = call(model, x, y)
    assert all(row.tobytes() == buffers.tobytes() for row in sums.new_buffers)


def test_frozen_parameters_of_other_types_are_kept_bit_by_bit():
    model, params, buffers = ready("coded")
    assert model.layout.names == ("layer.weight", "layer.bias")
    assert model.buffers_layout.names == ("seen", "codes", "small", "wide")
    x, y = samples(CASES["coded"][1], 3, 4)
    _, sums = call(model, x, y)
    before = model.named(params, buffers)[1]
    assert [before[name].dtype for name in ("codes", "small", "wide")] == [np.int64, np.int8, np.float64]
    assert sorted(before["codes"]) == list(range(FEATURES))
    for row in sums.new_buffers:
        after = model.named(params, row)[1]
        assert all(before[name].tobytes() == after[name].tobytes() for name in ("codes", "small", "wide"))
        assert after["seen"].tolist() == [1.0, -2.0, 3.0]


def test_unused_parameters_are_told():
    model, _, _ = ready("frozen")
    x, y = samples(CASES["frozen"][1], 3, 4)
    x[:, 0, 0] = 1.0, -1.0, 1.0
    grads, sums = call(model, x, y)
    used = dict(zip(model.layout.names, sums.used.T, strict=True))
    assert used["idle"].tolist() == [False] * 3
    assert used["rare"].tolist() == [True, False, True]
    assert used["top.weight"].all()
    assert not model.layout.views(grads)["idle"].any()
    x[:, 0, 0] = -1.0, 1.0, 1.0
    assert call(model, x, y)[1].used[:, model.layout.names.index("rare")].tolist() == [False, True, True]


def test_batch_norm_averages_statistics_and_takes_the_count():
    model, params, buffers = ready("noisy")
    assert model.buffers_layout.names == ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert (model.unaveraged, model.fixed) == (2, 0)
    buffers[-2:] = np.array([2**40 + 6], np.int64).view(np.float32)
    x, y = samples(CASES["noisy"][1], 2, 4)
    _, sums = call(model, x, y)
    for row in sums.new_buffers:
        assert model.named(params, row)[1]["1.num_batches_tracked"] == 2**40 + 7


def test_buffers_of_any_type_and_odd_lengths():
    model, params, buffers = ready("reassigning")
    assert model.buffers_layout.length - model.unaveraged == 3 + FEATURES
    x, y = samples(CASES["reassigning"][1], 2, 4)
    _, sums = call(model, x, y)
    buffers[:] = sums.new_buffers[1]
    _, sums = call(model, x, y)
    found = model.named(params, sums.new_buffers[0])[1]
    assert found["calls"].tolist() == [2, 2, 2]
    assert found["calls"].dtype == np.int16
    assert found["wide"] == 0.1 + 0.1
    assert found["odd"].tolist() == [3.0] * 3
    mean = np.float32(0.9) * (np.float32(0.1) * x[1].mean(0)) + np.float32(0.1) * x[0].mean(0)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_an_exported_run_loads_into_the_same_module(case, tmp_path):
    model, params, buffers = ready(case)
    x, y = samples(CASES[case][1], 1, 4)
    buffers[:] = call(model, x, y)[1].new_buffers[0]
    kept = weights.Weights.of(model, np.append(params, np.float32(7)), buffers)
    weights.save(kept, tmp_path / "w.safetensors")
    found = weights.load(tmp_path / "w.safetensors")
    assert found.sha256() == kept.sha256()
    weights.export(found, tmp_path / "w.pt")
    module = CASES[case][0]()
    module.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True), strict=True)
    state = module.state_dict()
    assert state.keys() == model.state_names.keys()
    for key, name in model.state_names.items():
        assert state[key].numpy().tobytes() == kept.arrays[name].tobytes(), key
    model.bind(params * 0, buffers * 0)  # nothing of the file may be a view of the vectors
    assert found.sha256() == weights.load(tmp_path / "w.safetensors").sha256()


def test_a_parameter_called_w_is_not_turned_round(tmp_path):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.W = torch.nn.Parameter(torch.randn(FEATURES, CLASSES))
            self.b = torch.nn.Parameter(torch.randn(CLASSES))

        def forward(self, x):
            return x @ self.W + self.b

    model, params, _ = bound(Own, ROWS)
    weights.export(weights.Weights.of(model, params, params[:0]), tmp_path / "w.pt")
    module = Own()
    module.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True))
    assert np.array_equal(module.W.detach().numpy().ravel(), params[: FEATURES * CLASSES])


def test_a_factory_whose_module_changes_is_refused():
    sizes = iter([8, 9])
    model = TorchModel(
        lambda: torch.nn.Sequential(torch.nn.Linear(4, size := next(sizes)), torch.nn.Linear(size, 2)), Task((4,), 2)
    )
    with pytest.raises(UserError, match=r"Sequential came out differently .*\nHINT"):
        model.init(np.empty(model.layout.length, np.float32), np.empty(0, np.float32), generator(0, "init"))
