"""What is wrong with data (an error), and what is doubtful about them (a warning), before anything is computed.

    check_inputs("mine", "train_x", x); y = understand_targets("mine", "train_y", y)
    for doubt in data_warnings(load("mine.npz")): print(f"Warning: {doubt}")

The one idea: every check names the array and its first bad row, and says how to correct it. Row numbers are those of
the arrays as the source gave them. A warning is for data that every model can read, but probably not as they were
meant: one sentence and a HINT.

Targets by shape: (rows,) are class labels; (rows, outputs) of floating-point numbers are targets of a regression;
(rows, 1) of whole-number type are labels, too. One-hot labels in floating point are therefore taken for a regression.

Limits: warnings are about three mistakes: labels that do not begin with 0, labels that are one-hot rows, and images
with their channels last. `unisono data check` looks for them; the second is also looked for where a model does not fit
the data. Classes that are missing in between are no warning, nor are few samples of many classes.
"""

import numpy as np

from unisono.data.dataset import PARTS, Dataset
from unisono.data.shards import blocks
from unisono.errors import UserError
from unisono.models.torch.nets.network_request import channels_last

_BLOCK_ROWS = 4096
_LARGEST_LABEL = 2**31 - 1
_FROM_0 = "number the classes 0, 1, 2 ..."
_PLENTY = 20
"""So many samples a class: none of a class is no accident (e^-20 if all are as frequent)."""
NO_ONE_HOT = "give class numbers (y.argmax(axis=1)), not one-hot rows"


def check_inputs(name: str, key: str, x: np.ndarray) -> None:
    """x is (rows, ...), has at least one feature, and is finite, also as float32."""
    _check_kind(name, key, x)
    if x.ndim < 2:
        raise UserError(
            f"{name}: {key} has shape {x.shape}, expected (rows, features) or (rows, height, width)",
            hint="x.reshape(-1, 1) makes rows of one feature",
        )
    if x.size == 0:
        raise UserError(f"{name}: {key} is empty, its shape is {x.shape}", hint="give at least one row and one feature")
    _check_finite(name, key, x)


def understand_targets(name: str, key: str, y: np.ndarray) -> np.ndarray:
    """(rows,) int64 labels or (rows, outputs) float32 targets, out of what was given."""
    _check_kind(name, key, y)
    if y.ndim == 2 and y.shape[1] == 1 and y.dtype.kind in "iub":
        y = y[:, 0]
    if y.ndim == 2 and y.dtype.kind == "f" and y.shape[1] > 0:
        _check_finite(name, key, y)
        return np.ascontiguousarray(y, np.float32)
    if y.ndim != 1:
        raise UserError(
            f"{name}: {key} is {y.dtype} of shape {y.shape}, expected (rows,) labels, or (rows, outputs) of floating "
            "point for a regression",
            hint="y.argmax(axis=1) turns one-hot labels into class numbers; y.astype('float32') makes targets",
        )
    if y.dtype.kind == "f":
        hint = "targets of a regression have shape (rows, outputs)"
        _refuse(name, key, y, y != np.floor(y), "is not a whole number", hint)
    y = y.astype(np.int64) if y.dtype.kind == "b" else y
    _refuse(name, key, y, y < 0, "is negative", _FROM_0)
    _refuse(name, key, y, y > _LARGEST_LABEL, "is out of range", _FROM_0)
    return y.astype(np.int64)


def check_tokens(name: str, part: str, x: np.ndarray, y: np.ndarray, vocabulary: int) -> None:
    """Both are (rows, T) of whole numbers from 0 to below `vocabulary`, with the same T."""
    for key, tokens in ((f"{part}_x", x), (f"{part}_y", y)):
        if tokens.dtype.kind not in "iu" or tokens.ndim != 2 or tokens.size == 0 or tokens.shape[1] != x.shape[1]:
            raise UserError(
                f"{name}: {key} is {tokens.dtype} of shape {tokens.shape}, expected whole numbers (rows, length)",
                hint="cut the text into pieces of one length; y is x shifted by one",
            )
        bad = (tokens < 0) | (tokens >= vocabulary)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise UserError(
                f"{name}: {key} row {row}, column {column}: token {tokens[row, column]} is out of range: there are "
                f"{vocabulary}",
                hint="number the tokens 0, 1, 2 ...",
            )


def check_pair(name: str, part: str, x: np.ndarray, y: np.ndarray) -> None:
    if len(x) != len(y):
        raise UserError(
            f"{name}: {part}_x has {len(x)} rows, {part}_y has {len(y)}", hint="give one label or target for each row"
        )


def check_alike(name: str, part: str, train: np.ndarray, other: np.ndarray, axis: str) -> None:
    """The arrays of another part fit those of the training part."""
    if axis == "y" and train.ndim != other.ndim:
        meant = {1: "labels", 2: "targets of a regression"}
        raise UserError(
            f"{name}: train_y holds {meant[train.ndim]}, {part}_y {meant[other.ndim]}", hint="give both the same form"
        )
    if train[:1].size != other[:1].size:
        what = "features" if axis == "x" else "outputs"
        raise UserError(
            f"{name}: train_{axis} has {train[:1].size} {what} a row, {part}_{axis} has {other[:1].size}",
            hint="make them the same way",
        )


def count_classes(name: str, labels: dict[str, np.ndarray], declared: int) -> int:
    """How many classes there are: as `declared`, or counted in `labels["train_y"]`; all labels must fit."""
    train = labels["train_y"]
    if train.min() == train.max():
        raise UserError(
            f"{name}: train_y holds one class only, {train[0]}",
            hint="there is nothing to tell apart: add other classes",
        )
    classes = declared or int(train.max()) + 1
    if not declared and classes > sum(map(len, labels.values())):
        raise UserError(
            f"{name}: train_y row {train.argmax()}: label {train.max()} would make {classes} classes, more than rows",
            hint=_FROM_0,
        )
    for key, y in labels.items():
        problem = f"is out of range: there are {classes} classes" + ("" if declared else ", counted in train_y")
        _refuse(name, key, y, y >= classes, problem, f"{_FROM_0} up to {classes - 1}")
    return classes


def _check_kind(name: str, key: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "fiub":
        raise UserError(f"{name}: {key} is of type {array.dtype}, not numbers", hint="give an array of numbers")


def _check_finite(name: str, key: str, array: np.ndarray) -> None:
    if array.dtype.kind != "f":
        return
    for block in blocks(len(array), _BLOCK_ROWS):
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(array[block].astype(np.float32))
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            value = array[block][place]
            what = str(value) if not np.isfinite(value) else f"{value}, too large for float32"
            column = ", ".join(map(str, place[1:]))
            raise UserError(
                f"{name}: {key} row {block.start + place[0]}, column {column}: {what}",
                hint="leave such rows out, or replace the values",
            )


def _refuse(name: str, key: str, y: np.ndarray, bad: np.ndarray, problem: str, hint: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise UserError(f"{name}: {key} row {row}: label {y[row]} {problem}", hint=hint)


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
