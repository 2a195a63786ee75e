"""Doubts: said of labels from 1, of one-hot rows and of channels last, and of nothing that may well be meant so."""

import numpy as np
import pytest

from unisono.data.checks import data_warnings
from unisono.data.dataset import DataOptions, Raw
from unisono.data.preparation import prepare
from unisono.data.sources import load

FLAT = (4,)


def told(y, shape=FLAT, *, classes=0, **more) -> str:
    y = np.asarray(y)
    arrays = {"train_x": np.ones((len(y), *shape), np.float32), "train_y": y}
    for part, labels in more.items():
        arrays |= {f"{part}_x": np.ones((len(labels), *shape), np.float32), f"{part}_y": np.asarray(labels)}
    return "\n".join(data_warnings(prepare(Raw("mine", arrays, classes), DataOptions())))


@pytest.mark.parametrize("first", [1, 5])
def test_labels_that_do_not_begin_with_0(first):
    said = told(np.arange(200) % 10 + first)
    assert f"labels count from {first}, {first} to {first + 9}: " in said
    assert {1: "class 0 has no sample,", 5: "classes 0 to 4 have no sample,"}[first] in said
    assert f"a model has {first + 10} outputs\nHINT: number the classes 0, 1, 2 ...: y - {first}" in said


def test_one_hot_rows_are_told_and_other_targets_are_not():
    rows = np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]
    assert "train_y has rows of 0 with a single 1, 3 in each: it is read as a regression\nHINT: if" in told(rows)
    for other in (rows * 2, rows - 1, rows[:, :1], rows[:, :2], 1 - rows, rows / 2 + 0.25):
        assert told(other) == ""


def test_labels_from_1_with_gaps_and_of_few_rows():
    assert "from 1, 1 to 2" in told([1, 2, 1])
    assert "from 1, 1 to 9" in told([1, 2, 3, 9] * 50)


@pytest.mark.parametrize(
    ("labels", "more"),
    [
        ([0, 1, 2], {}),
        ([0, 2, 9, 9, 9, 9, 9, 9, 9, 9], {}),  # gaps, but from 0
        ([3, 7, 9], {"classes": 20}),  # few samples of many classes
        ([1, 2] * 50, {"test": [0, 1]}),  # 0 is there: the training part has none
    ],
)
def test_labels_that_are_fine(labels, more):
    assert told(labels, **more) == ""


@pytest.mark.parametrize("shape", [(28, 28, 3), (28, 28, 1), (32, 5, 4)])
def test_channels_last(shape):
    said = told([0, 1], shape)
    assert f"samples of shape {shape} are read as images of {shape[0]} channels of {shape[1]} x {shape[2]}" in said
    assert "HINT: if they are images, put the channels first: x.transpose(0, 3, 1, 2)" in said


@pytest.mark.parametrize("shape", [(3, 28, 28), (1, 28, 28), (28, 28), (3, 4, 4), (4, 9, 3), (28, 28, 3, 3), (3,)])
def test_shapes_that_are_fine(shape):
    assert told([0, 1], shape) == ""


@pytest.mark.parametrize("name", ["digits", "synthetic:regression,rows=50", "synthetic:rows=9", "synthetic-text"])
def test_the_data_that_come_along_are_fine(name):
    assert data_warnings(load(name, DataOptions(download=False))) == []
