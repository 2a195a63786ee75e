"""From what a source delivered to a Dataset: check, split, cast, scale. Once, the same for every source.

    dataset = prepare(Raw("mine", {"train_x": x, "train_y": y}), DataOptions(validation=0.1))

Checks come first and see the source's own row numbers. Images of bytes are split before they grow to float32, so peak
memory is little above what stays. Which samples are held out for validation depends on the seed and the number of
samples alone; both parts keep the order of the source.

>>> kept, held = cut(10, 0.3, seed=0)
>>> len(kept), len(held), sorted([*kept, *held]) == list(range(10))
(7, 3, True)

Limits: not stratified; small data may leave a rare class in one part only.
"""

import math

import numpy as np

from unisono import aligned
from unisono.data import checks
from unisono.data import normalisation as scaling
from unisono.data.dataset import PARTS, DataOptions, Dataset, Raw, freeze
from unisono.errors import UserError, unknown_name
from unisono.rng import generator


def cut(samples: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(kept, held out): the indices of both parts, each ascending."""
    if not 0 <= fraction < 1:
        raise UserError(
            f"the validation part is {fraction:g} of the training part",
            hint="give a fraction from 0 to below 1, as 0.1",
        )
    count = round(samples * fraction)
    if fraction and not 0 < count < samples:
        raise UserError(
            f"{fraction:g} of {samples} training samples are {count} for validation and {samples - count} for training",
            hint="choose a fraction that leaves both parts some, or give more data",
        )
    order = generator(seed, "split").permutation(samples)
    return np.sort(order[count:]), np.sort(order[:count])


def prepare(raw: Raw, options: DataOptions) -> Dataset:
    """The data set, or a `UserError` that says what is wrong with it."""
    kind = raw.normalise if options.normalise == "auto" else options.normalise
    if kind not in scaling.KINDS:
        raise unknown_name("normalisation", kind, [*scaling.KINDS, "auto"])
    if raw.tokens and kind != "none":
        raise UserError(f"{raw.name} is text: normalisation {kind} would spoil it", hint="leave it out, or say none")
    arrays, classes = _check(raw)
    shape = arrays["train_x"].shape[1:]
    if options.validation:
        _hold_out(arrays, options.validation, options.seed, raw.name)
    for part in PARTS:
        x = arrays.get(f"{part}_x", arrays["train_x"][:0])
        y = arrays.get(f"{part}_y", arrays["train_y"][:0])
        # A copy where it will be scaled: the array may be the user's.
        dtype = np.int64 if raw.tokens else np.float32
        rows = x.reshape(len(x), math.prod(shape))
        if kind != "none" or rows.dtype != dtype:
            flat = aligned.empty(rows.shape, dtype)
            flat[...] = rows
        else:
            flat = aligned.as_aligned(rows)
        arrays[f"{part}_x"], arrays[f"{part}_y"] = flat, aligned.as_aligned(y)
    normalisation = scaling.Normalisation()
    if kind != "none":
        shift, scale = scaling.measure(kind, arrays["train_x"], shape)
        for part in PARTS:
            scaling.apply(arrays[f"{part}_x"], shift, scale)
        normalisation = scaling.Normalisation(kind, shift, scale)
    return freeze(
        Dataset(
            raw.name, **arrays, classes=classes, shape=shape, normalisation=normalisation, vocabulary=raw.vocabulary
        )
    )


def _check(raw: Raw) -> tuple[dict[str, np.ndarray], int]:
    """The arrays with their targets understood, parts without rows left out; the number of classes."""
    arrays = dict(raw.arrays)
    for part in PARTS:
        x, y = f"{part}_x", f"{part}_y"
        if x not in arrays:
            continue
        if part != "train" and arrays[x].shape[:1] == arrays[y].shape[:1] == (0,):
            del arrays[x], arrays[y]
            continue
        if raw.tokens:
            checks.check_tokens(raw.name, part, arrays[x], arrays[y], raw.classes)
            arrays[y] = arrays[y].astype(np.int64, order="C", copy=False)
        else:
            checks.check_inputs(raw.name, x, arrays[x])
            arrays[y] = checks.understand_targets(raw.name, y, arrays[y])
        checks.check_pair(raw.name, part, arrays[x], arrays[y])
        for axis in "xy":
            checks.check_alike(raw.name, part, arrays[f"train_{axis}"], arrays[f"{part}_{axis}"], axis)
    if arrays["train_y"].ndim == 2:
        return arrays, raw.classes if raw.tokens else 0
    return arrays, checks.count_classes(
        raw.name, {key: y for key, y in arrays.items() if key.endswith("y")}, raw.classes
    )


def _hold_out(arrays: dict[str, np.ndarray], fraction: float, seed: int, name: str) -> None:
    if "validation_x" in arrays:
        raise UserError(
            f"{name} has a validation part of its own, {len(arrays['validation_x'])} rows",
            hint="leave out the fraction for validation, or the part",
        )
    kept, held = cut(len(arrays["train_x"]), fraction, seed)
    for axis in "xy":
        whole = arrays[f"train_{axis}"]
        arrays[f"train_{axis}"], arrays[f"validation_{axis}"] = whole[kept], whole[held]
