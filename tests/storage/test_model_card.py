"""What lies beside the weights: new samples go through what the training data went through, bit by bit."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from unisono.data.arrays import load_digits
from unisono.data.dataset import DataOptions, Raw
from unisono.data.normalisation import Normalisation
from unisono.data.sources import load as load_data
from unisono.data.text import TextOptions, windows
from unisono.errors import UserError
from unisono.models import activations
from unisono.models.nets import NETWORKS
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage import model_card, weights
from unisono.storage.model_card import ModelCard
from unisono.training.job import prepare

DOCS = Path(__file__).parents[2] / "docs" / "use-what-you-trained.md"
RNG = np.random.default_rng(5)
ROWS = (RNG.standard_normal((97, 13)) * 1e3).astype(np.float32) * np.logspace(-6, 6, 13, dtype=np.float32)


@pytest.fixture(autouse=True)
def no_threads() -> None:
    """A process that has started torch's cannot fork the ranks of the next test."""
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)


@pytest.fixture
def rows(tmp_path) -> str:
    """Features of very different sizes; one of them is constant."""
    x = ROWS.copy()
    x[:, 3] = 7.25
    np.savez(tmp_path / "rows.npz", train_x=x, train_y=np.arange(97) % 5, test_x=x[:11], test_y=np.arange(11) % 5)
    return str(tmp_path / "rows.npz")


def trained(tmp_path: Path, **options) -> weights.Weights:
    """The file of a run, read back."""
    job = prepare(Recipe.from_options(**{"epochs": 1, "batch_size": 24, "ranks": 2, "model": "mlp:7"} | options))
    file = tmp_path / "weights.safetensors"
    SupervisedRun(job, RunPlaces(weights=file)).train(lambda rank, record: None)
    return weights.load(file)


@pytest.mark.parametrize("normalise", ["none", "unit", "standard"])
def test_new_samples_are_those_that_training_saw(tmp_path, rows, normalise):
    card = trained(tmp_path, data=rows, normalise=normalise).card
    data = load_data(rows, DataOptions(normalise=normalise))
    with np.load(rows) as raw:
        assert card.prepare_samples(raw["test_x"]).tobytes() == data.test_x.tobytes()
        assert np.array_equal(card.prepare_samples(raw["test_x"].astype(np.float64)), data.test_x)
    assert (card.model, card.engine, card.precision, card.activation) == ("mlp:7", "numpy", "fp32", "sigmoid")
    assert (card.shape, card.outputs, card.classes, card.normalisation.kind) == ((13,), 5, 5, normalise)
    with pytest.raises(
        UserError, match=r"samples of shape \(13,\).*trained on samples of shape \(13,\)(?s:.*)x\[None\]"
    ):
        card.prepare_samples(ROWS[0])


@pytest.mark.parametrize(
    ("model", "activation"), [("bn-mlp:7", ""), ("mlp:7,3", "gelu"), ("cnn:3", ""), ("cnn:3", "tanh")]
)
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_a_network_that_is_built_again_scores_as_its_run_did(tmp_path, model, activation, dropout):
    torch = pytest.importorskip("torch")
    options = {"data": "digits", "model": model, "activation": activation, "dropout": dropout}
    job = prepare(Recipe.from_options(**{"epochs": 1, "batch_size": 96, "ranks": 1} | options))
    file = tmp_path / "weights.safetensors"
    result = SupervisedRun(job, RunPlaces(weights=file)).train(lambda rank, record: None).results[0]
    found = weights.load(file)
    network = found.card.build_module().eval()
    network.load_state_dict(found.state_dict())
    raw = load_digits().arrays
    with torch.no_grad():
        outputs = network(torch.from_numpy(found.card.prepare_samples(raw["test_x"])))
    assert (outputs.argmax(1).numpy() == raw["test_y"]).mean() == pytest.approx(result["test_accuracy"])
    assert found.card.activation == (activation or "relu")


def test_the_snippet_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    trained(tmp_path / "runs" / "mine", data="digits", model="mlp:64", epochs=8, batch_size=64)
    (code,) = re.findall(r"```python title=\"predict.py\"\n(.*?)```", DOCS.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "predict.py", "exec"), names := {})
    right = (names["outputs"].argmax(1).numpy() == load_digits().arrays["test_y"]).mean()
    assert right > 0.9  # a tenth without the constants, or with another activation
    assert "tensor([" in capsys.readouterr().out


def test_text_has_its_vocabulary(tmp_path):
    text = "ein Männlein steht im Walde ganz still und stumm\n" * 9
    (tmp_path / "song.txt").write_text(text)
    spec = f"{tmp_path}/song.txt:context=7"
    card = trained(tmp_path, data=spec, model="gpt:layers=1,heads=1,width=6", batch_size=24).card
    raw = windows("song", text, TextOptions(context=7))
    assert card.encode_text(text[:7]).tolist() == raw.arrays["train_x"][0].tolist()
    assert card.prepare_samples(raw.arrays["train_x"][:3]).dtype == np.int64
    assert (card.activation, card.tokens) == ("gelu", True)
    with pytest.raises(UserError, match="the character '%' is not in the vocabulary"):
        card.encode_text("100 %")


def test_a_network_of_ones_own_is_built_by_its_function():
    card = ModelCard.of(Recipe.from_options(model="mine.py:net", engine="torch"), load_data("digits"))
    assert (card.activation, card.input_shape) == ("", (1, 8, 8))
    with pytest.raises(UserError, match="call your function"):
        card.build_module()


def test_constants_come_back_bit_by_bit():
    bits = RNG.integers(0, 2**32, 999, dtype=np.uint64).astype(np.uint32).view(np.float32)
    kept = bits[np.isfinite(bits)]
    found = Normalisation.read(json.loads(json.dumps(Normalisation("standard", kept, kept).plain)))
    assert (found.shift.tobytes(), found.scale.tobytes(), found.scale.dtype) == (kept.tobytes(),) * 2 + (np.float32,)


def test_too_many_constants_are_left_out_and_it_is_said(rows, monkeypatch, tmp_path):
    monkeypatch.setattr(model_card, "MOST", 12)
    card = trained(tmp_path, data=rows, normalise="standard").card
    with pytest.raises(UserError, match="the constants of the normalisation were not kept"):
        card.prepare_samples(ROWS)


@pytest.mark.parametrize("change", [{"shape": 7}, {"normalisation": {"kind": "unit"}}, {"outputs": "many"}, None])
def test_a_damaged_card_is_refused(tmp_path, change):
    card = ModelCard.of(Recipe.from_options(engine="numpy"), load_data("digits"))
    plain = [] if change is None else card.plain | change
    found = weights.Weights({"W": np.ones((2, 3), np.float32)}, {}, None, card)

    class Broken:
        pass

    Broken.plain = plain
    weights.save(replace(found, card=Broken()), tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="is damaged"):
        weights.load(tmp_path / "w.safetensors")


def test_every_network_with_hidden_layers_has_an_activation_of_its_own():
    from unisono.models.torch.nets import NETWORKS as OF_TORCH

    assert set(activations.OWN_ACTIVATIONS) == {*NETWORKS, *OF_TORCH} - {"linear"}
    assert set(activations.OWN_ACTIVATIONS.values()) <= set(activations.ACTIVATIONS)


def test_raw_text_that_came_as_numbers_has_no_vocabulary():
    assert Raw("mine", {}, tokens=True).vocabulary == ""
