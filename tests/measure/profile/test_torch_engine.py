"""Looking into the torch engine: memory as torch counts it, backward put down to modules, no bit changed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from unisono.measure.profile.torch_engine import TorchInstrument  # noqa: E402
from unisono.models.torch.build import build  # noqa: E402
from unisono.models.torch.learning_task import Task  # noqa: E402
from unisono.models.torch.model import TorchModel  # noqa: E402
from unisono.rng import generator  # noqa: E402

pytestmark = pytest.mark.forked  # torch's profiler starts a thread


def gradients(model, calls, shape=(1, 32, 512), classes=20):
    rng = np.random.default_rng(0)
    params = np.empty(model.layout.length, np.float32)
    buffers = np.empty(model.buffers_layout.length, np.float32)
    model.init(params, buffers, generator(1, "init"))
    model.bind(params, buffers)
    x = rng.standard_normal(shape).astype(np.float32)
    y = rng.integers(0, classes, shape[:2])
    grads = np.empty((shape[0], model.layout.length), np.float32)
    for _ in range(calls):
        model.loss_and_grad(x, y, grads, 1 / 32)
    return grads.tobytes()


def by_kind(rows, phase):
    found = {}
    for row in rows:
        if row["phase"] == phase:
            calls, nbytes = found.get(row["kind"], (0, 0))
            found[row["kind"]] = calls + row["calls"], nbytes + row["memory_bytes"]
    return found


def test_a_batch_of_32_takes_the_memory_that_was_reported_of_the_reference_model():
    """Of 100 batches: Linear 650 kB in 200 calls, BatchNorm 425 kB, ReLU 400 kB."""
    instrument = TorchInstrument(build("bn-mlp:32", Task((512,), 20)), memory=True, shapes=False)
    with instrument.watching("modules"):
        gradients(instrument.model, 1)
        instrument.begin("modules")
        watched = gradients(instrument.model, 2)
    found = by_kind(instrument.modules(), "forward")
    assert found["Linear"] == (4, 2 * 6.5 * 1024)
    assert found["BatchNorm1d"] == (2, 2 * 4.25 * 1024)
    assert found["ReLU"] == (2, 2 * 4 * 1024)
    assert watched == gradients(build("bn-mlp:32", Task((512,), 20)), 2)


class Twice(torch.nn.Module):
    """A module inside a module, called twice."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(self.inner(x))))


def test_operators_and_what_undoes_them_belong_to_the_innermost_module():
    instrument = TorchInstrument(TorchModel(Twice, Task((4,), 3)), memory=False, shapes=True)
    with instrument.watching("modules"):
        gradients(instrument.model, 2, (2, 5, 4), 3)
    rows = {(row["phase"], row["module"]): row for row in instrument.modules()}
    assert rows[("forward", "inner")]["calls"] == 8  # 2 calls, 2 shards, twice each
    assert rows[("forward", "last")]["calls"] == rows[("forward", "Twice")]["calls"] == 4
    own = rows[("forward", "Twice")]["self_s"] + sum(rows[("forward", name)]["total_s"] for name in ("inner", "last"))
    assert own == pytest.approx(rows[("forward", "Twice")]["total_s"])
    operators = {(row["phase"], row["module"], row["operator"]): row["calls"] for row in instrument.operators()}
    assert operators[("forward", "Twice", "aten::tanh")] == 4
    assert operators[("backward", "Twice", "TanhBackward0")] == 4
    assert operators[("backward", "inner", "AddmmBackward0")] == 8
    assert operators[("backward", "last", "AddmmBackward0")] == 4
    assert all(row["memory_bytes"] is None for row in instrument.operators())
    shapes = {row["shapes"] for row in instrument.operators() if row["operator"] == "aten::tanh"}
    assert shapes == {"5x4"}


def test_nothing_is_left_in_the_module():
    model = build("mlp:8", Task((6,), 3))
    before = gradients(model, 1, (1, 4, 6), 3)
    instrument = TorchInstrument(model, memory=True, shapes=False)
    with instrument.watching("phases"):
        gradients(model, 1, (1, 4, 6), 3)
    with instrument.watching("modules"):
        gradients(model, 1, (1, 4, 6), 3)
    seen = len(instrument.spans("modules"))
    assert gradients(model, 1, (1, 4, 6), 3) == before
    assert len(instrument.spans("modules")) == seen
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.module.modules())
