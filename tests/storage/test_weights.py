"""Weights in files: model order, the hash, every format read back, nothing half-written.

What is damaged or no run at all: see tests/cli/test_weights_command.py.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from unisono.errors import UnisonoError, UserError
from unisono.models.nets import build
from unisono.storage import weights as module
from unisono.storage.weights import FORMATS, Weights, export, load, read, save, verify


def weights_of(spec: str, features: int = 6, outputs: int = 3) -> tuple[Weights, np.ndarray]:
    """A model's weights with values that no model starts with, and all of them as one vector."""
    model = build(spec, features, outputs)
    rng = np.random.default_rng(3)
    params = rng.normal(size=model.layout.length).astype(np.float32)
    buffers = rng.uniform(0.5, 2, model.buffers_layout.length).astype(np.float32)
    weights = Weights(model.layout.views(params), model.buffers_layout.views(buffers))
    return weights, np.concatenate([params, buffers])


# Twelve layers and more: "10.gamma" sorts before "2.W", and buffers before "3.W", by name but not in the model.
DEEP, DEEP_FLAT = weights_of("bn-mlp:5,4,3,2")


@pytest.fixture
def run(tmp_path) -> Path:
    """A run directory as far as weights go."""
    path = tmp_path / "run"
    path.mkdir()
    save(DEEP, path / "weights.safetensors")
    (path / "recipe.toml").touch()
    (path / "summary.json").write_text(json.dumps({"weights_sha256": hashlib.sha256(DEEP_FLAT.tobytes()).hexdigest()}))
    return path


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """Names, order, shapes, types and bits."""
    facts = [
        [(name, array.shape, array.dtype, array.tobytes()) for name, array in arrays.items()]
        for arrays in (found, expected)
    ]
    return facts[0] == facts[1]


def test_arrays_come_back_in_model_order_and_hash_like_the_vectors(run):
    assert list(load_file(run / "weights.safetensors")) != list(DEEP.arrays), "the file alone would do"
    assert same(read(run / "weights.safetensors"), DEEP.arrays)
    found = load(str(run))
    assert same(found.parameters, DEEP.parameters)
    assert same(found.buffers, DEEP.buffers)
    assert found.sha256() == hashlib.sha256(DEEP_FLAT.tobytes()).hexdigest()
    assert verify(run, found)


def test_the_hash_does_not_depend_on_how_arrays_lie_in_memory():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = hashlib.sha256(values.astype("<f4").tobytes()).hexdigest()
    for array in (values, np.asfortranarray(values), np.repeat(values, 2, axis=1)[:, ::2], values.astype(">f4")):
        assert Weights({"x": array}, {}).sha256() == expected


@pytest.mark.parametrize(
    "array",
    [np.array(2.5), np.zeros((0, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3).T, np.array([True])],
    ids=["scalar", "empty", "transposed", "bool"],
)
@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_odd_arrays_survive(tmp_path, array, ending):
    export(Weights({"file": array}, {}), tmp_path / f"w{ending}")
    found = dict(np.load(tmp_path / "w.npz", allow_pickle=False)) if ending == ".npz" else read(tmp_path / f"w{ending}")
    assert found["file"].shape == array.shape
    assert found["file"].dtype == array.dtype
    assert (found["file"] == array).all()


def test_formats_with_names_keep_order_and_bits(run, tmp_path):
    export(load(run), tmp_path / "w.NPZ")
    with np.load(tmp_path / "w.NPZ", allow_pickle=False) as found:
        assert same(dict(found), DEEP.arrays)
    export(load(run), tmp_path / "w.safetensors")
    assert (tmp_path / "w.safetensors").read_bytes() == (run / "weights.safetensors").read_bytes()


def test_txt_of_a_linear_model(tmp_path):
    values = np.array([[0.1], [-2.5], [1e-30]], np.float32)
    export(Weights({"W": values, "b": np.array([3.0], np.float32)}, {}), tmp_path / "w.txt")
    assert (tmp_path / "w.txt").read_text().splitlines() == [
        "W:", "1.000000014901161194e-01", "-2.500000000000000000e+00", "1.000000003171076851e-30",
        "b:", "3.000000000000000000e+00",
    ]  # fmt: skip


def test_txt_gives_every_bit_back(tmp_path):
    export(DEEP, tmp_path / "w.txt")
    lines = (tmp_path / "w.txt").read_text().splitlines()
    assert [line for line in lines if line.endswith(":")] == [f"{name}:" for name in DEEP.arrays]
    assert (np.float32([line for line in lines if not line.endswith(":")]) == DEEP_FLAT).all()


def test_equal_weights_give_equal_files(tmp_path):
    for ending in (".npz", ".safetensors", ".txt"):
        files = [tmp_path / f"{number}{ending}" for number in range(20)]
        for file in files:
            export(DEEP, file)
        assert len({file.read_bytes() for file in files}) == 1, ending
    with zipfile.ZipFile(tmp_path / "0.npz") as bundle:
        assert {entry.date_time for entry in bundle.infolist()} == {(1980, 1, 1, 0, 0, 0)}


TORCH = """
import sys
from pathlib import Path
import numpy as np
import torch
from torch import nn
from unisono.storage.weights import export, load

torch.set_num_threads(1)
folder = Path(sys.argv[1])
x, layers = torch.from_numpy(np.load(folder / "x.npy")), []
for inputs, outputs in ((6, 5), (5, 4), (4, 3), (3, 2)):
    layers += nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()
for name, net in (("deep", nn.Sequential(*layers, nn.Linear(2, 3))), ("linear", nn.Linear(6, 3))):
    for ending in ("pt", "pth"):
        export(load(folder / f"{name}.safetensors"), folder / f"{name}.{ending}")
    assert (folder / f"{name}.pt").read_bytes() == (folder / f"{name}.pth").read_bytes()
    state = torch.load(folder / f"{name}.pt", weights_only=True)
    assert type(state) is dict
    net.load_state_dict(state, strict=True)
    assert all(key.endswith("num_batches_tracked") for key in set(net.state_dict()) - set(state))
    np.save(folder / f"{name}.npy", net.eval()(x).detach().numpy())
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torch_loads_the_state_dict_and_computes_the_same(tmp_path):
    x = np.random.default_rng(4).normal(size=(7, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    linear, _ = weights_of("linear")
    save(DEEP, tmp_path / "deep.safetensors")
    save(linear, tmp_path / "linear.safetensors")
    subprocess.run([sys.executable, "-c", TORCH, str(tmp_path)], check=True, timeout=100)
    w = linear.arrays
    np.testing.assert_allclose(np.load(tmp_path / "linear.npy"), x @ w["W"] + w["b"], rtol=1e-5, atol=1e-6)
    w, z = DEEP.arrays, x
    for a, b in ((0, 1), (3, 4), (6, 7), (9, 10)):
        z = (z @ w[f"{a}.W"] + w[f"{a}.b"] - w[f"{b}.running_mean"]) / np.sqrt(w[f"{b}.running_var"] + 1e-5)
        z = np.maximum(z * w[f"{b}.gamma"] + w[f"{b}.beta"], 0)
    np.testing.assert_allclose(np.load(tmp_path / "deep.npy"), z @ w["12.W"] + w["12.b"], rtol=1e-4, atol=1e-5)


def test_no_array_is_lost_on_the_way_to_torch(tmp_path):
    with pytest.raises(UserError, match=r"0\.W, 0\.gamma some have one name"):
        export(Weights({"0.W": np.eye(2), "0.gamma": np.ones(2)}, {}), tmp_path / "w.pt")
    assert not list(tmp_path.iterdir())


def test_without_torch_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"needs the package torch.*\nHINT: pip install -c constraints.txt '.\[torch\]'"
    ):
        export(DEEP, tmp_path / "w.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["w.zip", "w", ".npz", "w.npz.gz"])
def test_an_unknown_ending_lists_the_valid_ones(tmp_path, name):
    with pytest.raises(UserError, match=r"there are: \.npz, \.safetensors, \.txt, \.pt, \.pth"):
        export(DEEP, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_left_alone_unless_forced(tmp_path):
    (tmp_path / "w.npz").write_text("precious")
    with pytest.raises(UserError, match=r"w\.npz exists\nHINT: .*--force"):
        export(DEEP, tmp_path / "w.npz")
    assert (tmp_path / "w.npz").read_text() == "precious"
    export(DEEP, tmp_path / "w.npz", force=True)
    with np.load(tmp_path / "w.npz") as found:
        assert same(dict(found), DEEP.arrays)


UNWRITABLE = {"d.npz": "is a directory", "none/w.npz": "there is no directory", f"{'n' * 300}.npz": "name too long"}


@pytest.mark.parametrize(("name", "message"), UNWRITABLE.items(), ids=UNWRITABLE.values())
def test_what_cannot_be_written_is_said(tmp_path, name, message):
    (tmp_path / "d.npz").mkdir()
    with pytest.raises(UserError, match=f"(?i){message}"):
        export(DEEP, tmp_path / name, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_end_in_the_middle_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, error):
    def write(weights, file):
        file.write(b"half")
        raise error

    monkeypatch.setitem(FORMATS, ".npz", write)
    target = tmp_path / "w.npz"
    target.write_text("precious")
    with pytest.raises((UserError, KeyboardInterrupt)) as raised:
        export(DEEP, target, force=True)
    assert raised.type is KeyboardInterrupt or "No space left on device" in str(raised.value)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


def test_others_may_read_the_file_if_they_may_read_any(tmp_path):
    (tmp_path / "any").touch()
    save(DEEP, tmp_path / "w.safetensors")
    assert (tmp_path / "w.safetensors").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_file_of_another_program_is_read_by_name(tmp_path):
    save_file({"b": np.ones(2), "a": np.zeros(3)}, tmp_path / "w.safetensors", {"format": "pt"})
    assert list(read(tmp_path / "w.safetensors")) == ["a", "b"]


def test_a_run_whose_order_is_unknown_is_not_judged(run):
    save_file(DEEP.arrays, run / "weights.safetensors")
    with pytest.raises(UserError, match=r"does not say the order.*\nHINT: name the file itself"):
        read(run)
    assert sorted(read(run / "weights.safetensors")) == sorted(DEEP.arrays)


def test_other_weights_than_the_summary_says_are_an_error_that_names_both(run):
    save(
        Weights({name: array + 1 for name, array in DEEP.parameters.items()}, DEEP.buffers), run / "weights.safetensors"
    )
    with pytest.raises(UnisonoError) as raised:
        read(run)
    assert raised.value.exit_code == 1
    assert load(run).sha256() in str(raised.value)
    assert hashlib.sha256(DEEP_FLAT.tobytes()).hexdigest() in str(raised.value)
