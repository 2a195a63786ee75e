"""What is doubtful about data that can be used: said as a warning, for nobody but their owner knows.

The one idea: `checks.py` refuses what no model can read; here is what every model reads, and hardly as it was meant. A
doubt is one sentence and a HINT, and is left out where the data may well be meant so.

    for doubt in data_warnings(load("mine.npz")): print(f"Warning: {doubt}")

Limits: three mistakes, labels that do not begin with 0, labels that are one-hot rows, and images with their channels
last; looked for by `unisono data check`, the second also where a model does not fit the data. Classes that are missing
in between say nothing, and so do few samples of many classes.
"""

import numpy as np

from unisono.data.dataset import PARTS, Dataset
from unisono.models.torch.nets.request import channels_last

_PLENTY = 20
"""So many samples a class: none of a class is no accident (e^-20 if all are as frequent)."""
NO_ONE_HOT = "give class numbers (y.argmax(axis=1)), not one-hot rows"


def data_warnings(dataset: Dataset) -> list[str]:
    """A text each; none for data that are fine."""
    return [] if dataset.tokens else [*_of_labels(dataset), *_of_images(dataset)]


def one_hot(dataset: Dataset) -> bool:
    """Whether targets are rows of 0 with a single 1: classes, most likely, that are taken for numbers."""
    y = dataset.train_y
    if dataset.classes or y.ndim != 2 or y.shape[1] < 2:
        return False
    return bool(((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all())


def _of_labels(dataset: Dataset) -> list[str]:
    """Labels from 1, as of data that were made for another language: the model gets a class that there is not. Or
    one-hot rows, as other libraries want them."""
    if one_hot(dataset):
        told = f"train_y has rows of 0 with a single 1, {dataset.outputs} in each: it is read as a regression"
        return [f"{told}\nHINT: if they are classes, {NO_ONE_HOT}"]
    if not dataset.classes:
        return []
    labels = np.concatenate([dataset.part(part)[1] for part in PARTS])
    counts, first = np.bincount(labels, minlength=dataset.classes), int(labels.min())
    if not first or not (counts[first:].all() or len(labels) >= _PLENTY * dataset.classes):
        return []
    missing = "class 0 has no sample" if first == 1 else f"classes 0 to {first - 1} have no sample"
    return [
        f"labels count from {first}, {first} to {dataset.classes - 1}: {missing}, and a model has {dataset.outputs} "
        f"outputs\nHINT: number the classes 0, 1, 2 ...: y - {first}"
    ]


def _of_images(dataset: Dataset) -> list[str]:
    if not channels_last(dataset.shape):
        return []
    channels, height, width = dataset.shape
    return [
        f"samples of shape {dataset.shape} are read as images of {channels} channels of {height} x {width} pixels: "
        "their channels come last\nHINT: if they are images, put the channels first: x.transpose(0, 3, 1, 2)"
    ]
