"""Looking into the NumPy engine changes no bit, and sees every layer and operator once a call."""

import numpy as np
import pytest

from unisono.aligned import ALIGNMENT_BYTES
from unisono.measure.profile.numpy_engine import NumpyInstrument
from unisono.measure.profile.timed_layers import Stamps, held_bytes
from unisono.models.layers import Linear, Room
from unisono.models.nets import build
from unisono.rng import generator

SHARDS, BATCH, FEATURES, CLASSES = 3, 5, 7, 4


def made(dropout=0.0, activation="gelu"):
    return build("bn-mlp:6,5", FEATURES, CLASSES, activation=activation, dropout=dropout)


def gradients(model, calls=1):
    """What `calls` calls leave, and what they return."""
    rng = np.random.default_rng(3)
    params = np.empty(model.layout.length, np.float32)
    buffers = np.empty(model.buffers_layout.length, np.float32)
    model.init(params, buffers, generator(1, "init"))
    model.bind(params, buffers)
    x = rng.standard_normal((SHARDS, BATCH, FEATURES)).astype(np.float32)
    y = rng.integers(0, CLASSES, (SHARDS, BATCH))
    grads = np.empty((SHARDS, model.layout.length), np.float32)
    for _ in range(calls):
        found = model.loss_and_grad(x, y, grads, 1 / 15, lambda shard: generator(0, "dropout", 0, 0, shard))
    return [grads.tobytes(), *(np.array(array).tobytes() for array in (found.loss_sum, found.correct))]


@pytest.mark.parametrize("part", ["phases", "modules", "operators"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu"])
def test_bits_are_those_of_the_plain_model(part, activation):
    instrument = NumpyInstrument(made(0.25, activation), memory=True, shapes=True)
    with instrument.watching(part):
        watched = gradients(instrument.model, calls=2)
    assert watched == gradients(made(0.25, activation), calls=2)


def test_every_layer_is_seen_once_a_call_and_the_halves_add_up():
    instrument = NumpyInstrument(made(), memory=True, shapes=False)
    with instrument.watching("modules"):
        gradients(instrument.model, calls=4)
    rows = instrument.modules()
    layers = [*["Linear", "BatchNorm", "GELU"] * 2, "Linear", "SoftmaxCrossEntropy"]
    found = [(row["module"], row["kind"]) for row in rows if row["phase"] == "forward"]
    assert found == list(zip([*"0123456", "loss"], layers, strict=True))
    assert len(rows) == 16
    assert {row["calls"] for row in rows} == {4}
    spans = instrument.spans("modules")
    for phase in ("forward", "backward"):
        whole = sum(ended - begun for key, begun, ended in spans if key == (phase,))
        assert sum(row["self_s"] for row in rows if row["phase"] == phase) == pytest.approx(whole)


def test_what_watching_costs_is_taken_off_and_no_layer_takes_less_than_nothing():
    stamps = Stamps()
    stamps.watch(build("linear", 2, 1))
    stamps.price_s = 0.5
    stamps.read += [0.0, 2.0, 2.25, 4.0, 8.0]
    assert [(key[0], ended - begun) for key, begun, ended in stamps.spans()] == [
        ("forward", 1.5), ("forward", 0.0), ("backward", 1.25), ("backward", 3.5),
        ("forward", 2.25), ("backward", 5.75),
    ]  # fmt: skip


def test_the_price_is_what_steps_took_longer_shared_out_over_the_readings():
    charged = NumpyInstrument(made(), memory=False, shapes=False)
    for part in ("phases", "modules"):
        with charged.watching(part):
            gradients(charged.model, calls=3)
    charged.take_off(3 * 14e-9)  # 17 readings a call, 3 of them also for phases alone
    assert charged._stamps.price_s == pytest.approx(1e-9)
    charged.take_off(-1.0)
    assert charged._stamps.price_s == 0.0


def test_the_price_is_not_what_disturbed_a_few_steps():
    charged = NumpyInstrument(made(), memory=False, shapes=False)
    for part in ("phases", "modules"):
        with charged.watching(part):
            gradients(charged.model, calls=2)
    ends_us = [*range(0, 34, 2), *range(101, 152, 3)]  # layers take 2 us in one call and 3 in the other
    charged._stamps.read[:] = [1e-6 * end for end in ends_us]
    charged.take_off(1.0)  # as if a second of other programs were the price
    assert charged._stamps.price_s == pytest.approx(2e-6)
    assert all(row["self_s"] == pytest.approx(1e-6) for row in charged.modules())


def test_phases_alone_are_two_spans_a_call():
    instrument = NumpyInstrument(made(), memory=False, shapes=False)
    with instrument.watching("phases"):
        gradients(instrument.model, calls=3)
    spans = instrument.spans("phases")
    assert [key for key, _, _ in spans] == [("forward",), ("backward",)] * 3
    assert all(ended == begun for (_, _, ended), (_, begun, _) in zip(spans[::2], spans[1::2], strict=True))


def test_what_was_seen_while_it_warmed_up_is_forgotten():
    instrument = NumpyInstrument(made(), memory=False, shapes=False)
    for part in ("modules", "operators"):
        with instrument.watching(part):
            gradients(instrument.model)
            instrument.begin(part)
            gradients(instrument.model, calls=2)
    assert {row["calls"] for row in instrument.modules()} == {2}
    assert {row["calls"] for row in instrument.operators() if row["operator"] == "exp" and row["kind"] == "GELU"} == {2}


def test_operators_are_those_that_the_layer_is_written_with():
    instrument = NumpyInstrument(build("linear", FEATURES, 2), memory=True, shapes=True)
    with instrument.watching("operators"):
        model = instrument.model
        params, buffers = np.zeros(model.layout.length, np.float32), np.zeros(0, np.float32)
        model.bind(params, buffers)
        x, y = np.ones((1, BATCH, FEATURES), np.float32), np.zeros((1, BATCH, 2), np.float32)
        model.loss_and_grad(x, y, np.empty((1, len(params)), np.float32), 1.0)
    seen = {(row["phase"], row["kind"], row["operator"], row["shapes"]): row["calls"] for row in instrument.operators()}
    assert seen[("forward", "Linear", "matmul", "1x5x7, 7x2")] == 1
    assert seen[("forward", "Linear", "add", "1x5x2, 2")] == 1
    assert seen[("backward", "Linear", "matmul", "1x7x5, 1x5x2")] == 1
    assert seen[("backward", "Linear", "matmul", "1x5, 1x5x2")] == 1
    assert seen[("forward", "MeanSquaredError", "add.reduce", "1x10")] == 1


def test_memory_is_what_a_layer_holds_without_parameters():
    layer = Linear(FEATURES, 4)
    params = np.zeros(layer.layout.length, np.float32)
    none, rows = np.zeros(0, np.float32), np.zeros((2, 0), np.float32)
    opened = layer.open(Room((2, BATCH, FEATURES), params, none, rows, []))
    outputs, back = (2 * (-(-4 * BATCH * width // ALIGNMENT_BYTES) * ALIGNMENT_BYTES) for width in (4, FEATURES))
    borders = 3 * ALIGNMENT_BYTES  # what aligned memory takes to begin on one: outputs, back, a row of ones
    assert held_bytes(opened, [params, none, rows]) == outputs + back + 4 * BATCH + borders
