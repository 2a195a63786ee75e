"""Losses, gradients and buffers against torch's autograd, which runs once for all cases in a process of its own.

torch loads our parameters by the names that `torch_names.py` gives them, so that is tested too.
"""

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from support.models.model_cases import FEATURES, call, samples
from support.paths import worker
from unisono.models.base import Model
from unisono.models.nets import build
from unisono.models.torch_names import torch_state

REFERENCE = worker("torch_reference")[1]


def sequential(*hidden: int, outputs: int, activation: str, normed: bool = False) -> list[list[object]]:
    layers: list[list[object]] = []
    width = FEATURES
    for size in hidden:
        layers += [["linear", width, size], *([["batch norm", size]] if normed else []), [activation]]
        width = size
    return [*layers, ["linear", width, outputs]]


CASES = {
    "linear": (lambda: build("linear", FEATURES, 3), sequential(outputs=3, activation="")),
    "sigmoid": (lambda: build("mlp:16,9", FEATURES, 5), sequential(16, 9, outputs=5, activation="sigmoid")),
    "relu": (lambda: build("mlp:16", FEATURES, 5, "relu"), sequential(16, outputs=5, activation="relu")),
    "tanh": (lambda: build("mlp:16", FEATURES, 5, "tanh"), sequential(16, outputs=5, activation="tanh")),
    "gelu": (lambda: build("mlp:16", FEATURES, 5, "gelu"), sequential(16, outputs=5, activation="gelu")),
    "bn-mlp": (lambda: build("bn-mlp", FEATURES, 20), sequential(32, outputs=20, activation="relu", normed=True)),
    "bn-mlp of two": (
        lambda: build("bn-mlp:8,7", FEATURES, 4, "tanh"),
        sequential(8, 7, outputs=4, activation="tanh", normed=True),
    ),
}
TYPES = {"float64": np.float64, "float32": np.float32}


def prepared(name: str, dtype: type) -> tuple[Model, dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """A model in the middle of training (buffers are not those of the start), its state by torch's names, x and y."""
    model = CASES[name][0]()
    rng = np.random.default_rng(8)
    params = rng.normal(scale=0.5, size=model.layout.length).astype(dtype)
    buffers = rng.uniform(0.5, 2, model.buffers_layout.length).astype(dtype)
    model.bind(params, buffers)
    state = model.layout.views(params) | model.buffers_layout.views(buffers)
    x, y = samples(model, (3, 6, FEATURES), dtype=dtype)
    return model, torch_state(state), x, y


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("torch")
    cases: dict[str, np.ndarray] = {}
    for name, (_, layers) in CASES.items():
        for kind, dtype in TYPES.items():
            _, state, x, y = prepared(name, dtype)
            case = {f"state/{key}": value for key, value in state.items()}
            case |= {"x": x, "y": y, "scale": np.array(0.125), "layers": np.array(json.dumps(layers))}
            cases |= {f"{name}, {kind}/{key}": value for key, value in case.items()}
    np.savez(folder / "cases.npz", **cases)
    command = [sys.executable, str(REFERENCE), str(folder / "cases.npz"), str(folder / "answers.npz")]
    subprocess.run(command, check=True, timeout=100)
    return np.load(folder / "answers.npz", allow_pickle=False)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_torch_finds_the_same(name, kind, answers):
    model, _, x, y = prepared(name, TYPES[kind])
    found = call(model, x, y)
    near = {"rtol": 2e-5, "atol": 2e-6} if kind == "float32" else {"rtol": 1e-9, "atol": 1e-12}
    if name == "gelu" and kind == "float64":
        near = {"rtol": 1e-6, "atol": 1e-7}  # what gelu.py promises
    expected = {key: answers[f"{name}, {kind}/{key}"] for key in ("loss_sum", "tested_loss_sum", "tested_correct")}
    np.testing.assert_allclose(found.sums[0], expected["loss_sum"], **near)
    np.testing.assert_allclose(found.evaluated[0], expected["tested_loss_sum"], **near)
    assert (found.evaluated[1] == expected["tested_correct"]).all()
    for shard in range(len(x)):
        grads = torch_state(model.layout.views(found.grads[shard]))
        for key, value in grads.items():
            np.testing.assert_allclose(value, answers[f"{name}, {kind}/grad/{key}"][shard], **near, err_msg=key)
        for key, value in torch_state(model.buffers_layout.views(found.new_buffers[shard])).items():
            np.testing.assert_allclose(value, answers[f"{name}, {kind}/buffer/{key}"][shard], **near, err_msg=key)
