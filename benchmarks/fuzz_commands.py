"""Inputs for `fuzz.py`: command lines from the real tables of options, recipes, and what SLURM's programs may answer.

The one idea: nothing that is drawn here may train for long. Options that say how much work there is get small or wrong
values only; most command lines write a recipe, name data that are missing, or stop before the first rank.

    given = make_arguments(random, sandbox)
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from random import Random
from typing import NamedTuple

from fuzz_files import VALID
from fuzz_mutations import ODD_NUMBERS, ODD_TEXTS, mutate_toml
from fuzz_runs import TINY, copied
from fuzz_sandbox import Sandbox
from fuzz_worker import ACCEPTED, EITHER, REFUSED, Input

STUDIES = ("scale", "compare", "tune", "profile")
AMOUNTS = (
    "epochs", "ranks", "num-gpus", "repeat", "warmup", "seconds", "batches", "nodes", "sizes", "elements",
    "timeout-s", "join-timeout", "poll-s",
    "num-nodes", "ranks-per-node", "grid", "over", "max-requeues", "data", "stall-timeout", "shards", "slow",
    "transport", "strategy", "model", "main-address",
)  # fmt: skip
"""Options of how much there is to do, or how long to wait."""
WRONG = (
    "-1",
    "0",
    "x",
    "",
    "1.5",
    "nan",
    "-",
    "1e9",
    "1,2,x",
    "٣",
    "\x1b[2J",
    "--help",
    "-h",
    "=",
    "'",
    "1 2",
    "\udcff",
    "+",
    "0x2",
)
WORDS = (
    "",
    "train",
    "report",
    "data",
    "run",
    "r2",
    "no-such.toml",
    "--",
    "-",
    "--help",
    "--version",
    "-x",
    "--no-such",
    "\udcff",
    "é",
    "a" * 5000,
)


class Option(NamedTuple):
    """Of a command. flag: takes no value."""

    name: str
    flag: bool


@cache
def options_of(command: str) -> tuple[Option, ...]:
    """The real ones."""
    from unisono.cli.main import app

    found = app
    for word in command.split():
        found = found[word]
    return tuple(
        Option(name, argument.hint is bool)
        for argument in found.assemble_argument_collection()
        for name in argument.names
        if name.startswith("--")
    )


def odd_word(random: Random) -> str:
    text = str(random.choice((*ODD_NUMBERS, *ODD_TEXTS, *WRONG)))
    return text.replace("\0", "").replace("\ud800", "\udc80")


def _value(random: Random, option: Option) -> str:
    name = option.name.removeprefix("--")
    return random.choice(WRONG) if name in AMOUNTS else odd_word(random)


_MISSING = ("--epochs", "1", "--data", "missing.npz")
FAILING = (*STUDIES, "jobs", "cancel")
"""Commands that may fail whatever is asked for: runs fail, SLURM is not here. So does a run that diverges."""
BASES: dict[str, tuple[str, ...]] = {
    "train": ("train",), "submit": ("submit", "--mem", "1G", "--dry-run"), "jobs": ("jobs",), "cancel": ("cancel",
    "17"),
    "report": ("report", "run"), "watch": ("watch", "run", "--terminal"), "weights": ("weights", "run"),
    "data check": ("data", "check", "synthetic:rows=7"), "data list": ("data", "list"), "data fetch": ("data",
    "fetch", "digits"),
    "bench": ("bench", "--transports", "shm", "--ranks", "1", "--sizes", "64", "--algorithms", "naive", "--seconds",
    "0.01"),
    "predict": ("predict", *TINY, "--epochs", "1", "--samples-per-s", "1000", "--nodes", "2"),
    "doctor": ("doctor", "no-such-word"),
    "scale": ("scale", *_MISSING, "--grid", "1x1", "--repeat", "1"), "compare": ("compare", *_MISSING, "--over",
    "seed=1", "--repeat", "1"),
    "tune": ("tune", *_MISSING, "--ranks", "1", "--seconds", "1"), "profile": ("profile", *_MISSING, "--ranks", "1"),
}  # fmt: skip
"""By command, what is given unless it is overridden."""


def make_arguments(random: Random, sandbox: Sandbox) -> Input:
    """A command line; most have one to three odd options, some are nothing but words."""
    if random.random() < 0.07:
        words = [
            random.choice((*WORDS, *ODD_TEXTS)).replace("\0", "").replace("\ud800", "")
            for _ in range(random.randrange(5))
        ]
        words = [word for word in words if word not in ("train", "r2")]  # which would train
        return Input(tuple(words), EITHER, repr(words)[:80])
    command = random.choice(list(BASES))
    base, tail = list(BASES[command]), []
    if command in ("report", "watch", "weights"):
        copied(sandbox, "sync")
    trains = command == "train" and random.random() < 0.2
    if command == "train":
        tail = (
            [*TINY, "--epochs", "1", "--ranks", str(random.choice((1, 2))), "--out", "run"]
            if trains
            else ["--write-recipe", "new.toml"]
        )
        if not trains and random.random() < 0.3:
            tail = ["--data", "missing.npz"]
    valid = random.random() < VALID
    table = [option for option in options_of(command) if option.name.removeprefix("--no-") not in _SKIPPED]
    for option in random.sample(table, 0 if valid else min(len(table), random.choice((1, 1, 2, 3)))):
        given = option.name.removeprefix("--no-").removeprefix("--")
        if any(word == f"--{given}" for word in (*base, *tail)) and not option.flag:
            place = (base if f"--{given}" in base else tail).index(f"--{given}") + 1
            (base if f"--{given}" in base else tail)[place] = _value(random, option)
        elif option.flag:
            base.append(option.name)
        else:
            value = _value(random, option)
            base += random.choice(([option.name, value], [f"{option.name}={value}"], [option.name]))
    bad = command == "doctor" or "missing.npz" in (*base, *tail)
    shown = any(word in ("-h", "--help", "--version") for word in (*base, *tail))
    allowed = EITHER if shown or not valid else REFUSED if bad else ACCEPTED
    if (trains and not valid) or command in FAILING:
        allowed = allowed | {1, 2}
    return Input((*base, *tail), allowed, " ".join((*base, *tail))[:120])


_SKIPPED = (
    "--watch",
    "--until-end",
    "watch",
    "--self-test",
    "--open",
    "--follow",
    "--force",
    "--tensorboard",
    "--install-completion",
    "--terminal",
)


@cache
def recipe_keys() -> tuple[str, ...]:
    from unisono.recipe import Recipe

    return (*(field.name for field in fields(Recipe)), "base_lr", "num_gpus")


def make_recipe(random: Random, sandbox: Sandbox) -> Input:
    """A file of TOML: checked, submitted without a cluster, or trained."""
    data = (sandbox.template / "sync" / "recipe.toml").read_bytes()
    lines = [line for line in data.decode().splitlines() if not line.startswith(("out =", "resume =", "tensorboard ="))]
    data = ("\n".join(lines) + "\n").encode()
    path = sandbox.work / "a.toml"
    way = random.choice(["write"] * 6 + ["submit", "submit", "missing", "train"])
    argv = {
        "write": ("train", "a.toml", "--write-recipe", "new.toml"), "submit": ("submit", "a.toml", "--mem", "1G",
        "--dry-run"),
        "missing": ("train", "a.toml", "--data", "missing.npz"), "train": ("train", "a.toml", "--out", "run",
        "--epochs", "1", "--ranks", "1"),
    }[way]  # fmt: skip
    if random.random() < VALID:
        path.write_bytes(data)
        return Input(argv, REFUSED if way == "missing" else ACCEPTED, f"{way}: as it is")
    keys = recipe_keys()
    if way == "train":
        keys = tuple(
            key for key in keys if key not in ("epochs", "ranks", "num_gpus", "out", "resume", "data", "model", "slow")
        )
    data, about = mutate_toml(random, data, keys)
    path.write_bytes(data)
    allowed = {"missing": REFUSED, "train": EITHER | {1}}.get(way, EITHER)
    return Input(argv, allowed, f"{way}: {about}")


def make_locale(others: dict[str, Callable[[Random, Sandbox], Input]]) -> Callable[[Random, Sandbox], Input]:
    """Any of the other inputs with an output that knows few letters, or in a fresh interpreter with such a locale."""

    def make(random: Random, sandbox: Sandbox) -> Input:
        name = random.choice(list(others))
        given = others[name](random, sandbox)
        if random.random() < 0.85 or given.call is not None:
            encoding = random.choice(("ascii", "latin-1", "cp1252"))
            return replace(given, encoding=encoding, about=f"{encoding}, {name}: {given.about}")
        variables = random.choice((
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"},
            {"PYTHONIOENCODING": "latin-1"},
            {"LC_ALL": "no_SUCH.locale", "LANG": "C"}, {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        ))  # fmt: skip
        environment = {**given.environment, **variables}
        return replace(given, fresh=True, environment=environment, about=f"{variables}, {name}: {given.about}")

    return make
