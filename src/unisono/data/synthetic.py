"""Made-up data: regression with known weights, or classes with a chosen difficulty.

The one idea: everything is drawn from keyed streams and combined element by element, so equal options and seed give
equal bits on any machine (matrix products and sums would not), and the test part does not depend on how long the
training part is.

    synthetic:regression,rows=1000,features=10,noise=0.1
    synthetic:classes=20,rows=50000,features=512,difficulty=0.5

Regression: y = x w + b + noise, with x, w, b and the noise normal. The best possible mean squared error is noise**2.
Classes: each has a centre; a sample is its class's centre plus normal noise of deviation 1. Two centres are about
8 * (1 - difficulty) deviations apart: 0 is easy, 0.5 leaves some errors, at 1 nothing can be learnt.

Limits: with fewer than about ten features centres are not equally far apart. The limits of `rng.py` are those of this
file, too.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np

from unisono.data.dataset import DataOptions, Raw
from unisono.data.shards import blocks
from unisono.data.text import number_of
from unisono.errors import UserError, unknown_name
from unisono.resources import check_memory
from unisono.rng import generator

KINDS = ("regression", "classification")
SPREAD = 8.0
_TRUTH, _TRAIN, _TEST = 0, 1, 2
_BLOCK_ROWS = 4096


@final
@dataclass(frozen=True)
class Synthetic:
    """The options after `synthetic:`."""

    kind: str = "classification"
    rows: int = 10_000
    test_rows: int = -1
    """-1: a fifth of `rows`."""
    features: int = 32
    classes: int = 10
    difficulty: float = 0.5
    noise: float = 0.1
    seed: int = -1
    """-1: the seed of the run."""


_ONLY = {"classification": ("classes", "difficulty"), "regression": ("noise",)}


def load_synthetic(arguments: str, options: DataOptions) -> Raw:
    """The data that `arguments` (what follows `synthetic:`) describe."""
    made = parse(arguments)
    seed = options.seed if made.seed < 0 else made.seed
    draw = _classes if made.kind == "classification" else _regression
    test_rows = _test_rows(made)
    train_x, train_y = draw(made, seed, _TRAIN, made.rows)
    arrays = {"train_x": train_x, "train_y": train_y}
    if test_rows:
        arrays["test_x"], arrays["test_y"] = draw(made, seed, _TEST, test_rows)
    name = f"synthetic:{arguments}" if arguments else "synthetic"
    return Raw(name, arrays, made.classes if made.kind == "classification" else 0)


def parse(arguments: str) -> Synthetic:
    """'regression,rows=1000' -> Synthetic; a `UserError` for what is not understood.

    >>> parse("classes=3, rows=9").classes
    3
    """
    types: dict[str, Any] = {field.name: field.type for field in fields(Synthetic)}
    given: dict[str, str | int | float] = {}
    for word in filter(None, (word.strip() for word in arguments.split(","))):
        key, equals, text = (piece.strip() for piece in word.partition("="))
        if not equals:
            key, text = "kind", key
        if key not in types:
            raise unknown_name("option of synthetic", key, types)
        try:
            given[key] = number_of(types[key], text)
        except ValueError as error:
            raise UserError(f"synthetic: {word[:80]}: {error}", hint=f"for example {_example(key)}") from None
    made = Synthetic(**given)  # type: ignore[arg-type]  # each value was made by the type of its field
    _check(made, given)
    return made


def _check(made: Synthetic, given: dict[str, str | int | float]) -> None:
    if made.kind not in KINDS:
        raise unknown_name("kind of synthetic data", made.kind, KINDS)
    for kind, keys in _ONLY.items():
        for key in keys:
            if key in given and made.kind != kind:
                raise UserError(
                    f"synthetic: {key} has no meaning for {made.kind}", hint=f"leave it out, or ask for {kind}"
                )
    for key, least in (("rows", 1), ("features", 1), ("classes", 2), ("noise", 0.0), ("difficulty", 0.0)):
        value = getattr(made, key)
        if not least <= value < math.inf:
            raise UserError(f"synthetic: {key} is {value}", hint=f"give {least} or more")
    for key in ("test_rows", "seed"):
        if key in given and getattr(made, key) < 0:
            raise UserError(f"synthetic: {key} is {given[key]}", hint="give 0 or more")
    rows, classes = made.rows + _test_rows(made), made.classes if made.kind == "classification" else 0
    told = f"synthetic: {rows:,} rows of {made.features:,} features{f' in {classes:,} classes' * (classes > 0)}"
    # Samples are there twice for a moment; a centre of each class is drawn in double precision.
    needed = rows * (8 * made.features + 40) + classes * 24 * made.features
    check_memory(told, needed, "ask for fewer rows, features or classes")
    if made.difficulty > 1:
        raise UserError(
            f"synthetic: difficulty is {made.difficulty}", hint="give a number from 0 (easy) to 1 (hopeless)"
        )


def _test_rows(made: Synthetic) -> int:
    return made.rows // 5 if made.test_rows < 0 else made.test_rows


def _example(key: str) -> str:
    return f"{key}={getattr(Synthetic(), key)}"


def _regression(made: Synthetic, seed: int, part: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    truth, rng = generator(seed, "synthetic", _TRUTH), generator(seed, "synthetic", part)
    weights, bias = truth.standard_normal(made.features), truth.standard_normal()
    x = _normal(rng, rows, made.features)
    y = np.full(rows, bias)
    for column, weight in enumerate(weights):
        y += x[:, column] * weight
    y += made.noise * rng.standard_normal(rows)
    return x, y.astype(np.float32)[:, np.newaxis]


def _classes(made: Synthetic, seed: int, part: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    truth, rng = generator(seed, "synthetic", _TRUTH), generator(seed, "synthetic", part)
    centres = truth.standard_normal((made.classes, made.features))
    # Random directions are nearly at right angles: points at distance r from 0 are r * sqrt(2) apart.
    radius = SPREAD * (1 - made.difficulty) / math.sqrt(2)
    centres *= [[radius / math.sqrt(math.fsum(centre * centre))] for centre in centres]
    y = rng.permutation(np.arange(rows) % made.classes)
    x = _normal(rng, rows, made.features)
    narrow = centres.astype(np.float32)
    for block in blocks(rows, _BLOCK_ROWS):
        x[block] += narrow[y[block]]
    return x, y


def _normal(rng: np.random.Generator, rows: int, features: int) -> np.ndarray:
    """(rows, features) float32; drawn as doubles, block by block: see `rng.py` on what is the same everywhere."""
    x = np.empty((rows, features), np.float32)
    for block in blocks(rows, _BLOCK_ROWS):
        x[block] = rng.standard_normal(x[block].shape)
    return x
