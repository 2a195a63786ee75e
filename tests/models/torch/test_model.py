"""The engine against plain torch, and shards computed together against shards computed alone, bit by bit."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from support.models.engine_cases import CASES, CLASSES, FEATURES, ROWS, bound, call, noise, ready, samples
from unisono.errors import UserError
from unisono.models.torch.model import TorchModel
from unisono.models.torch.random_state import seed_from, seeded
from unisono.rng import generator

PRECISIONS = ["fp32", "bf16", "fp16"]


def plain(case: str) -> torch.nn.Module:
    """The module with the starting values of `ready`, made without the engine."""
    with seeded(generator(3, "init")):
        return CASES[case][0]().train()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", CASES)
def test_shards_together_have_the_bits_of_shards_alone(case, precision):
    try:
        model, params, buffers = ready(case, precision)
    except UserError as error:
        if precision != "fp16" or "cannot be computed in torch.float16" not in str(error):
            raise
        pytest.skip(str(error))
    for shards, batch in [(1, 2), (3, 5), (8, 32)] if precision == "fp32" else [(3, 5)]:
        same_bits(model, params, buffers, *samples(CASES[case][1], shards, batch))


def same_bits(model, params, buffers, x, y):
    shards = len(x)
    before = params.tobytes(), buffers.tobytes()
    grads, sums = call(model, x, y)
    assert np.isfinite(grads).all()
    kept = grads.tobytes(), sums.loss_sum.copy(), sums.correct.copy(), sums.new_buffers.copy()
    used = np.ones((shards, len(model.layout.names)), bool) if sums.used is None else sums.used.copy()
    for j in range(shards):
        alone, found = call(model, x[j : j + 1].copy(), y[j : j + 1].copy(), first=j)
        assert alone.tobytes() == grads[j : j + 1].tobytes()
        assert found.loss_sum[0] == kept[1][j]
        assert found.correct[0] == kept[2][j]
        assert found.new_buffers.tobytes() == kept[3][j : j + 1].tobytes()
        assert (found.used is None and used[j].all()) or np.array_equal(found.used[0], used[j])
    assert (params.tobytes(), buffers.tobytes()) == before


@pytest.mark.parametrize("case", CASES)
def test_one_shard_has_the_bits_of_plain_torch(case):
    model, params, _ = ready(case)
    task = CASES[case][1]
    x, y = samples(task, 1, 8)
    grads, sums = call(model, x, y)
    module, labels = plain(case), torch.from_numpy(y[0])
    seed_from(noise()(0))
    z = module(torch.from_numpy(x[0]).view(8, *task.input_shape))
    if task.classifies:
        loss = F.cross_entropy(z.flatten(0, -2), labels.flatten(), reduction="sum")
    else:
        loss = F.mse_loss(z, labels, reduction="sum")
    (loss * (1 / 37 / task.terms)).backward()
    assert sums.loss_sum[0] == loss.item() / task.terms
    assert sums.correct[0] == (int((z.argmax(-1) == labels).sum()) / task.terms if task.classifies else 0.0)
    state = module.state_dict(keep_vars=True)
    for number, (name, row) in enumerate(model.layout.views(grads[0]).items()):
        expected = state[name].grad
        assert (expected is not None) == (sums.used is None or bool(sums.used[0, number])), name
        wanted = np.zeros_like(row) if expected is None else expected.numpy()
        assert row.tobytes() == wanted.tobytes(), name
    left = dict(module.named_buffers()) | dict(module.named_parameters())
    for name, buffer in model.named(params, sums.new_buffers[0])[1].items():
        assert buffer.dtype == left[name].detach().numpy().dtype
        assert np.array_equal(buffer, left[name].detach().numpy()), name


@pytest.mark.parametrize("case", CASES)
def test_evaluation_is_the_module_in_eval_mode_and_changes_nothing(case):
    model, params, buffers = ready(case)
    task = CASES[case][1]
    x, y = samples(task, 2, 7)
    call(model, x, y)  # what a training call left in the module's buffers must not be seen
    before = params.tobytes(), buffers.tobytes(), torch.default_generator.get_state()
    x, y = x.copy(), y.copy()
    for array in (x, y):
        array.flags.writeable = False  # as in a dataset; torch would warn
    found = model.evaluate(x, y)
    assert found.new_buffers.shape == (2, 0)
    assert (params.tobytes(), buffers.tobytes()) == before[:2]
    assert torch.equal(torch.default_generator.get_state(), before[2])
    module = plain(case).eval()
    for j in range(2):
        z, labels = module(torch.tensor(x[j]).view(7, *task.input_shape)).detach(), torch.tensor(y[j])
        if task.classifies:
            loss = F.cross_entropy(z.flatten(0, -2), labels.flatten())
            assert found.correct[j] == pytest.approx((z.argmax(-1) == labels).double().mean().item() * 7)
        else:
            loss = F.mse_loss(z, labels)
        assert found.loss_sum[j] == pytest.approx(loss.item() * 7, rel=1e-5)
    first = call(model, x, y)[0]
    assert np.array_equal(first, call(model, x, y)[0])  # and the module is in training mode again


def test_dropout_belongs_to_the_shard_and_leaves_no_trace():
    model, _, _ = ready("noisy")
    x, y = (np.repeat(array[:1], 3, 0) for array in samples(CASES["noisy"][1], 1, 16))
    grads, _ = call(model, x, y, first=4)
    assert len({row.tobytes() for row in grads}) == 3
    torch.default_generator.manual_seed(99)  # whatever was drawn before
    assert call(model, x[:1], y[:1], first=6)[0].tobytes() == grads[2].tobytes()
    with pytest.raises(TypeError, match="draws random numbers"):
        model.loss_and_grad(x, y, np.empty_like(grads), 1.0)


def test_a_module_that_begins_to_draw_later_is_found_out():
    class Late(torch.nn.Module):
        late = False

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(FEATURES, CLASSES)

        def forward(self, x):
            return self.layer(F.dropout(x, 0.5) if self.late else x)

    model, _, _ = bound(Late, ROWS)
    x, y = samples(ROWS, 4, 6)
    early = call(model, x, y)[0]
    model.module.late = True
    late = call(model, x, y)[0]
    assert not np.array_equal(early, late)
    torch.default_generator.manual_seed(5)
    assert np.array_equal(call(model, x[2:3], y[2:3], first=2)[0], late[2:3])


def test_addresses_never_change():
    model, params, _ = ready("noisy")
    at = [p.data_ptr() for p in model.module.parameters()]
    x, y = samples(CASES["noisy"][1], 2, 4)
    first = call(model, x, y)[0]
    params *= 0.5
    assert not np.array_equal(call(model, x, y)[0], first)
    model.evaluate(x, y)
    assert [p.data_ptr() for p in model.module.parameters()] == at
    assert at[0] == params.ctypes.data


def test_starting_values_depend_on_the_generator_alone():
    torch.default_generator.manual_seed(1)
    _, one, _ = ready("noisy")
    torch.default_generator.manual_seed(2)
    _, two, _ = ready("noisy")
    assert np.array_equal(one, two)
    model = TorchModel(CASES["noisy"][0], CASES["noisy"][1])
    other = np.empty_like(one)
    before = torch.default_generator.get_state()
    model.init(other, np.empty(model.buffers_layout.length, np.float32), generator(4, "init"))
    assert torch.equal(before, torch.default_generator.get_state())
    assert not np.array_equal(one, other)


def test_batch_norm_on_one_sample_is_explained():
    model, _, _ = ready("noisy")
    x, y = samples(CASES["noisy"][1], 1, 1)
    with pytest.raises(UserError, match=r"(?s)batch norm cannot train on a shard of one sample.*HINT: .*--drop-last"):
        call(model, x, y)


def test_fp16_gradients_that_overflow_are_derived_again_with_a_smaller_factor():
    class Steep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(FEATURES, CLASSES)

        def forward(self, x):
            return self.layer(x * 30) * 300

    x, y = samples(ROWS, 1, 8)
    found = {}
    for precision in ("fp32", "fp16"):
        model, _, _ = bound(Steep, ROWS, precision=precision)
        found[precision] = np.empty((1, model.layout.length), np.float32)
        model.loss_and_grad(x, y, found[precision], 1.0)
    assert np.isfinite(found["fp16"]).all()
    error = np.linalg.norm(found["fp16"] - found["fp32"]) / np.linalg.norm(found["fp32"])
    assert 0 < error < 0.05


def test_precisions_differ():
    """Else the tests above could not fail."""
    x, y = samples(CASES["noisy"][1], 1, 8)
    assert len({call(ready("noisy", precision)[0], x, y)[0].tobytes() for precision in PRECISIONS}) == 3


def test_a_step_leaves_sympy_alone():
    """torch would import it for a gradient that is handed over: a third of a second, and much to map at every fork."""
    code = """
import sys, numpy as np, torch
before = "sympy" in sys.modules
from unisono.models.torch.build import build
from unisono.models.torch.learning_task import Task
for precision in ("fp32", "bf16"):
    model = build("mlp:8", Task((4,), 3), precision=precision)
    params, buffers = (np.zeros(layout.length, np.float32) for layout in (model.layout, model.buffers_layout))
    model.init(params, buffers, np.random.default_rng(0))
    model.bind(params, buffers)
    x, y = np.zeros((1, 2, 4), np.float32), np.zeros((1, 2), np.int64)
    model.loss_and_grad(x, y, np.zeros((1, len(params)), np.float32), 0.5)
print(before, "sympy" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    before, after = told.split()
    assert after == before, "imported by a step"
