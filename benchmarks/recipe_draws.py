"""Recipes drawn at random, with the ways in which each is to be run, for `random_recipes.py` and its short form in the
tests.

The one idea: a draw is a function of (seed, engine, number) alone, so a finding can be repeated by naming these. It
knows the rules of the command line only as far as needed to be accepted often; what unisono refuses is drawn again.

    draw = draw_recipe(7, "torch", 12, Path("somewhere")); draw.recipe, draw.ways

Limits: strategies and options with which bits depend on the ranks by design are left out: async, ddp, accelerate,
--allreduce other than arena, --wire bf16, --batch-size-per-rank. Two machines are left out where unisono refuses them
(--sync-batchnorm, snapshots of local), several BLAS threads because they take long on few cores.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from unisono.recipe import OPTIONS, Recipe, flag

ENGINES = ("numpy", "torch")
OWN = Path(__file__).with_name("own_modules.py")
FOR_ROWS = ("Frozen", "Tied", "Counting", "Coded", "Noisy", "Gated", "parametrized")
FOR_IMAGES = ("convolutional", "Upscaled")
FOR_TEXT = ("Recurrent", "TiedText")
FEATURES = (1, 2, 3, 5, 7, 8, 9, 11, 13, 13, 15, 17, 30, 31, 33, 64, 65)
HIDDEN = (1, 2, 3, 5, 5, 8, 8, 13, 17, 31, 40, 64, 65, 130)
NORMED = ("bn-mlp", "cnn", "wideresnet", "convolutional")
"""Networks with batch norm."""
MOST_RANKS = 8
HALT = "halt"
STEP, BEFORE, AFTER, UPDATE = "as a step begins", "before a meeting", "after a meeting", "in an update"
"""When a rank dies."""


@final
@dataclass(frozen=True)
class Strike:
    """What one rank does once: it dies at some moment, or it asks all to end with a snapshot."""

    machine: int
    rank: int
    """Of those of the machine."""
    at: float
    """How much of the run is done by then, from 0 to below 1."""
    moment: str = HALT
    meetings: int = 1
    """At which meeting from there on, if the moment is at one."""


@final
@dataclass(frozen=True)
class Way:
    """How a recipe is run: so many ranks on each machine, and what happens to them."""

    ranks: tuple[int, ...]
    strike: Strike | None = None
    then: tuple[int, ...] = ()
    """The ranks of each machine that the run is resumed on if it was halted."""

    def __str__(self) -> str:
        told, strike = _told(self.ranks), self.strike
        if self.then and strike is not None:
            return f"{told}, halted at {strike.at:.0%}, resumed on {_told(self.then)}"
        if strike is not None:
            told += f", rank {strike.rank} of machine {strike.machine} killed at {strike.at:.0%} {strike.moment}"
        return told


@final
@dataclass(frozen=True)
class Draw:
    """One of them."""

    seed: int
    engine: str
    number: int
    recipe: Recipe
    ways: tuple[Way, ...]
    """At least two, on different numbers of ranks."""

    @property
    def name(self) -> str:
        return f"{self.engine}-{self.number}"

    def __str__(self) -> str:
        """As on the command line, without what is as ever."""
        default, words = Recipe(), list[str]()
        for field in OPTIONS.values():
            value = self.recipe.option(field.name)
            if value != default.option(field.name) and field.name != "ranks":
                words += [flag(field.name)] if value is True else [flag(field.name), str(value)]
        return " ".join(words)


def draw_recipe(seed: int, engine: str, number: int, folder: Path) -> Draw:
    """The draw of that number; data that no option could name are put into `folder`."""
    rng = random.Random(f"{seed} {engine} {number}")
    given: dict[str, Any] = _data_and_model(rng, engine, folder)
    rows = given.pop("rows")
    given |= _batches(rng, rows) | _learning(rng) | _engine_options(rng, engine, given["model"])
    if rng.random() < 0.2:
        given |= {"strategy": "local", "sync_every": rng.choice((1, 2, 3, 7))}
        given |= {"local_after": rng.randrange(given["epochs"]), "sync_batchnorm": False}
    recipe = Recipe.from_options(engine=engine, **given)
    size = rows if recipe.learning.batch_size == "full" else min(rows, int(recipe.learning.batch_size))
    most = min(MOST_RANKS, size, recipe.ranks.shards or MOST_RANKS)
    ways = _ways(rng, most, recipe)
    if recipe.strategy.name == "local" and any(len(way.ranks) > 1 for way in ways):
        recipe = recipe.with_options(snapshot_every="")  # each machine has the states of its own replicas only
    return Draw(seed, engine, number, recipe, ways)


def _data_and_model(rng: random.Random, engine: str, folder: Path) -> dict[str, Any]:
    """Options of both, and how many samples there are to train with, at least."""
    kind = rng.choice(("rows",) if engine == "numpy" else ("rows", "rows", "rows", "images", "text"))
    if kind == "text":
        context = rng.randint(3, 17)
        characters = context * rng.randint(20, 60)
        model, more = _gpt(rng), _inside(rng)
        if rng.random() < 0.5:
            model, more = f"{OWN}:{rng.choice(FOR_TEXT)}", {}
        data = f"synthetic-text:characters={characters},context={context},test=0.2"
        return {"data": data, "model": model, "rows": int(0.8 * characters) // context - 1, **more}
    if kind == "images":
        data, rows, least = _images(rng, folder)
        names = ["cnn", "cnn", "mlp", *FOR_IMAGES] + ["wideresnet"] * (least >= 8)
    else:
        data, rows, classes = _rows(rng)
        plain = ["mlp", "mlp", "bn-mlp"] if classes or engine == "torch" else []
        plain += ["linear"] if not classes or engine == "torch" else []
        names = plain if engine == "numpy" else [*plain, *plain, *FOR_ROWS]
    name = rng.choice(names)
    validation = rng.choice((0.0, 0.0, 0.15))
    found = {"data": data, "rows": int(rows * (1 - validation)) - 1, "validation": validation}
    found["normalise"] = rng.choice(("auto", "auto", "none", "unit", "standard"))
    if name in (*FOR_ROWS, *FOR_IMAGES):
        return found | {"model": f"{OWN}:{name}"}
    if name == "linear":
        return found | {"model": name}
    return found | {"model": _sized(rng, name)} | _inside(rng)


def _rows(rng: random.Random) -> tuple[str, int, bool]:
    """(data, rows, whether they are classes)."""
    source = rng.random()
    if source < 0.05:
        return "digits", 1442, True
    if source < 0.12:
        return f"{OWN}:offset_rows", 70, True
    if source < 0.17:
        return f"{OWN}:wide_rows", 77, False
    rows, features = rng.randint(19, 211), rng.choice(FEATURES)
    shape = f"rows={rows},features={features},test_rows={rng.choice((0, 1, 31, 300))}"
    if rng.random() < 0.25:
        return f"synthetic:regression,{shape}", rows, False
    return f"synthetic:classes={rng.randint(2, 11)},{shape}", rows, True


def _images(rng: random.Random, folder: Path) -> tuple[str, int, int]:
    """(data, rows, the shorter side); of odd sizes, with and without channels."""
    rows, height, width = rng.randint(20, 60), rng.randint(5, 11), rng.randint(5, 11)
    shape = rng.choice(((height, width), (1, height, width), (2, height, width), (3, height, width)))
    made = np.random.default_rng(rng.randrange(2**32))
    x, y = made.random((rows + 9, *shape), np.float32), np.arange(rows + 9) % rng.randint(2, 6)
    path = folder / "images.npz"
    np.savez(path, train_x=x[:rows], train_y=y[:rows], test_x=x[rows:], test_y=y[rows:])
    return str(path), rows, min(height, width)


def _sized(rng: random.Random, name: str) -> str:
    if name == "wideresnet":
        return "wideresnet:1"
    if name == "cnn":
        return "cnn:" + ",".join(str(rng.randint(1, 9)) for _ in range(rng.randint(1, 2)))
    return f"{name}:" + ",".join(str(rng.choice(HIDDEN)) for _ in range(rng.randint(1, 3)))


def _gpt(rng: random.Random) -> str:
    heads = rng.randint(1, 3)
    return f"gpt:layers={rng.randint(1, 2)},heads={heads},width={heads * rng.randint(1, 11)}"


def _inside(rng: random.Random) -> dict[str, Any]:
    """What a network of ours can be told."""
    return {
        "activation": rng.choice(("", "", "relu", "tanh", "sigmoid", "gelu")),
        "dropout": rng.choice((0.0, 0.0, 0.1, 0.5)),
    }


def _batches(rng: random.Random, rows: int) -> dict[str, Any]:
    batch = rng.choice((rng.randint(2, 9), rng.randint(10, 97), rng.randint(10, 97), 24, 32, 50))
    if rows > 1000:
        batch = max(48, batch)  # else hundreds of steps
    shards = rng.choice((0, rng.randint(2, 8), rng.randint(2, 8), 8))
    return {
        "batch_size": "full" if rng.random() < 0.05 else batch,
        "shards": min(shards, batch),
        "drop_last": batch <= rows and rng.random() < 0.3,
        "epochs": 1 if rows > 1000 else rng.randint(1, 3),
    }


def _learning(rng: random.Random) -> dict[str, Any]:
    given = {
        "optimizer": rng.choice(("sgd", "momentum", "nesterov", "adam", "adamw", "lars")),
        "lr": rng.choice((0.001, 0.01, 0.05)),
        "momentum": rng.choice((-1.0, -1.0, 0.5)),
        "weight_decay": rng.choice((-1.0, 0.0, 0.01)),
        "clip": rng.choice((0.0, 0.0, 0.05, 1.0)),
        "schedule": rng.choice(("constant", "step", "cosine")),
        "warmup_epochs": rng.choice((0.0, 0.0, 0.7)),
        "seed": rng.choice((0, rng.randrange(2**31))),
        "eval_every": rng.choice((1, 1, 2)),
        "snapshot_every": rng.choice(("", "", "1epochs", "3steps", "1steps")),
        "respawn": rng.random() < 0.8,
    }
    if given["optimizer"] not in ("momentum", "nesterov", "lars"):
        del given["momentum"]
    if rng.random() < 0.1:
        given |= {"target_accuracy": rng.choice((0.3, 0.6)), "patience": rng.choice((1, 2))}
    return given


def _engine_options(rng: random.Random, engine: str, model: str) -> dict[str, Any]:
    if engine == "numpy":
        return {}
    name = model.partition(":")[2] if ".py:" in model else model.partition(":")[0]
    return {
        "precision": rng.choice((*["fp32"] * 6, "bf16", "fp16")),
        "sync_batchnorm": name in NORMED and rng.random() < 0.3,
    }


def _ways(rng: random.Random, most: int, recipe: Recipe) -> tuple[Way, ...]:
    """Two or three numbers of ranks, and for about half of the draws each: two machines, a death, a resume."""
    counts = rng.sample(range(1, most + 1), min(most, rng.choice((2, 2, 3))))
    if 1 not in counts and rng.random() < 0.5:
        counts[0] = 1
    ways = [Way((count,)) for count in counts]
    if not recipe.model.sync_batchnorm and rng.random() < 0.5:
        layout = _layout(rng, most)
        ways.append(Way(layout, _death(rng, layout) if rng.random() < 0.3 else None))
    if rng.random() < 0.5:
        layout = (rng.randint(2, most),)
        ways.append(Way(layout, _death(rng, layout)))
    if rng.random() < 0.5:
        several = 0.0 if recipe.model.sync_batchnorm or recipe.strategy.name == "local" else 0.15
        begun = _layout(rng, most) if rng.random() < several else (rng.randint(1, most),)
        then = _layout(rng, most) if rng.random() < several else (_other(rng, most, sum(begun)),)
        machine = rng.randrange(len(begun))
        ways.append(Way(begun, Strike(machine, rng.randrange(begun[machine]), rng.random()), then))
    return tuple(ways)


def _layout(rng: random.Random, most: int) -> tuple[int, ...]:
    """So many ranks on each of two machines."""
    first = rng.randint(1, most - 1)
    return first, rng.randint(1, most - first)


def _death(rng: random.Random, layout: Sequence[int]) -> Strike | None:
    """On a machine where somebody is left; None: there is none."""
    machines = [machine for machine, count in enumerate(layout) if count > 1]
    if not machines:
        return None
    machine = rng.choice(machines)
    moment = rng.choice((STEP, BEFORE, AFTER, UPDATE))
    return Strike(machine, rng.randrange(layout[machine]), rng.random(), moment, rng.randint(1, 3))


def _other(rng: random.Random, most: int, ranks: int) -> int:
    return rng.choice([count for count in range(1, most + 1) if count != ranks])


def _told(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"{ranks[0]} rank{'s' * (ranks[0] > 1)}"
    return f"{{{','.join(map(str, ranks))}}} on {len(ranks)} machines"
