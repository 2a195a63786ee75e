"""Where modules are trained: views of our vectors on the processor, a copy with the same answers elsewhere."""

import numpy as np
import pytest
import torch
from torch import nn

from support.models.engine_cases import bound
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel
from unisono.strategies.external.module_placement import DeviceCopy, generator_of, placed, probe


def ready(*layers: nn.Module) -> tuple[TorchModel, np.ndarray, dict]:
    model, params, buffers = bound(lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), *layers), Task((4,), 3))
    views, states = model.named(params, buffers)
    return model, params, {name: torch.from_numpy(view) for name, view in (views | states).items()}


def test_on_the_processor_updates_are_seen_in_the_vector():
    model, params, homes = ready()
    module = placed(model, torch.device("cpu"), homes)
    assert module is model.module
    assert int(module[1].num_batches_tracked) == 0  # the trial of a new model does not count
    with torch.no_grad():
        module[0].bias += 1.0
    np.testing.assert_array_equal(homes["0.bias"].numpy(), module[0].bias.detach().numpy())
    assert np.shares_memory(params, module[0].bias.detach().numpy())


def test_a_module_elsewhere_answers_here_and_follows_the_mode():
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    away = DeviceCopy(module, torch.device("cpu"))
    away.train(False)
    assert not module[1].training
    x = torch.ones(2, 4)
    torch.testing.assert_close(away(x), module(x), rtol=0.0, atol=0.0)


def test_a_module_elsewhere_computes_in_the_precision_of_whoever_asks():
    seen = []

    class Seeing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
            return x

    away = DeviceCopy(Seeing(), torch.device("cpu"))
    away(torch.ones(2))
    for kind in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", kind):
            away(torch.ones(2))
    assert seen == [torch.float32, torch.bfloat16, torch.float16]


def test_each_device_has_a_generator_of_its_own(monkeypatch):
    assert generator_of(torch.device("cpu")) is torch.default_generator
    own = torch.Generator(), torch.Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", own)
    assert generator_of(torch.device("cuda:1")) is own[1]


@pytest.mark.parametrize(("layer", "draws"), [(nn.ReLU(), False), (nn.Dropout(0.5), True)])
def test_a_probe_sees_and_leaves_no_trace(layer, draws):
    model, params, homes = ready(layer)
    module = placed(model, torch.device("cpu"), homes)
    before = params.copy(), {name: buffer.clone() for name, buffer in module.named_buffers()}
    x = torch.arange(12.0).reshape(3, 4)
    found = probe(module, lambda: module(x).sum())
    assert (bool(found.draws), found.unused) == (draws, False)
    assert probe(module, lambda: module[0](x).sum()).unused  # batch norm's parameters
    np.testing.assert_array_equal(params, before[0])
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[1][name])
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_module_elsewhere_is_evaluated_as_such_however_often_it_is_trained_in_between():
    """Whoever trains it turns the copy itself to training, as `ExternalStep.step` does."""
    model, _, homes = ready(nn.Dropout(0.5))
    module = placed(model, torch.device("cpu"), homes)
    model.module = DeviceCopy(module, torch.device("cpu"))
    x = np.random.default_rng(0).standard_normal((1, 50, 4)).astype(np.float32)
    y = np.zeros((1, 50), np.int64)
    for _ in range(3):
        module.train()
        statistics = module[1].running_mean.clone()
        first, second = (float(model.evaluate(x, y).loss_sum[0]) for _ in range(2))
        assert first == second, "dropout was on"
        assert torch.equal(statistics, module[1].running_mean)
