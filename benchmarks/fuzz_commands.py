"""Inputs for `fuzz.py`: command lines from the real tables of options, recipes, and what SLURM's programs may answer.

The one idea: nothing that is drawn here may train for long. Options that say how much work there is get small or wrong
values only; most command lines write a recipe, name data that are missing, or stop before the first rank.

    given = make_arguments(random, sandbox)
"""

from collections.abc import Callable
from dataclasses import replace
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
    "epochs", "ranks", "num-gpus", "repeat", "warmup", "seconds", "batches", "nodes", "sizes", "elements", "timeout-s",
    "join-timeout", "poll-s", "num-nodes", "ranks-per-node", "grid", "over", "max-requeues", "data", "stall-timeout",
    "shards", "slow", "transport", "strategy", "model", "main-address",
)  # fmt: skip
"""Options of how much there is to do, or how long to wait."""
WRONG = (
    "-1", "0", "x", "", "1.5", "nan", "-", "1e9", "1,2,x", "٣", "\x1b[2J", "--help", "-h", "=", "'", "1 2", "\udcff",
    "+", "0x2",
)  # fmt: skip
WORDS = (
    "", "report", "data", "run", "no-such.toml", "--", "-", "--help", "--version", "-x", "--no-such", "\udcff", "é",
    "a" * 5000,
)  # fmt: skip
SKIPPED = (
    "watch", "until-end", "self-test", "open", "follow", "force", "tensorboard", "install-completion", "terminal",
)  # fmt: skip
"""Options that keep a command running, or allow what is looked for."""


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


_QUICK = ("--seconds", "0.01")
_MISSING = ("--epochs", "1", "--data", "missing.npz")
FAILING = (*STUDIES, "jobs", "cancel")
"""Commands that may fail whatever is asked for: runs fail, SLURM is not here. So does a run that diverges."""
BASES: dict[str, tuple[str, ...]] = {
    "train": ("train", "--write-recipe", "new.toml"),
    "submit": ("submit", "--mem", "1G", "--dry-run"),
    "jobs": ("jobs",),
    "cancel": ("cancel", "17"),
    "report": ("report", "run"),
    "watch": ("watch", "run", "--terminal"),
    "weights": ("weights", "run"),
    "data check": ("data", "check", "synthetic:rows=7"),
    "data list": ("data", "list"),
    "data fetch": ("data", "fetch", "digits"),
    "bench": ("bench", "--transports", "shm", "--ranks", "1", "--sizes", "64", "--algorithms", "naive", *_QUICK),
    "predict": ("predict", *TINY, "--epochs", "1", "--samples-per-s", "1000", "--nodes", "2"),
    "doctor": ("doctor", "no-such-word"),
    "scale": ("scale", *_MISSING, "--grid", "1x1", "--repeat", "1"),
    "compare": ("compare", *_MISSING, "--over", "seed=1", "--repeat", "1"),
    "tune": ("tune", *_MISSING, "--ranks", "1", "--seconds", "1"),
    "profile": ("profile", *_MISSING, "--ranks", "1"),
}
"""By command, what is given unless it is overridden."""


def make_arguments(random: Random, sandbox: Sandbox) -> Input:
    """A command line; most have one to three odd options, some are nothing but words."""
    if random.random() < 0.07:
        some = [random.choice((*WORDS, *ODD_TEXTS)) for _ in range(random.randrange(5))]
        words = [word.replace("\0", "").replace("\ud800", "") for word in some]
        return Input(tuple(words), EITHER, repr(words)[:80])
    command = random.choice(list(BASES))
    words, trains = list(BASES[command]), command == "train" and random.random() < 0.2
    if command in ("report", "watch", "weights"):
        copied(sandbox, "sync")
    if trains:
        words = ["train", *TINY, "--epochs", "1", "--ranks", random.choice("12"), "--out", "run"]
    elif command == "train" and random.random() < 0.3:
        words = ["train", *_MISSING]
    valid = random.random() < VALID
    if not valid:
        table = [option for option in options_of(command) if _bare(option) not in SKIPPED]
        for option in random.sample(table, min(len(table), random.choice((1, 1, 2, 3)))):
            _give(random, words, option)
    allowed = EITHER if not valid else REFUSED if command == "doctor" or "missing.npz" in words else ACCEPTED
    if (trains and not valid) or command in FAILING:
        allowed = allowed | {1, 2}
    return Input(tuple(words), allowed, " ".join(words)[:120])


def _bare(option: Option) -> str:
    return option.name.removeprefix("--").removeprefix("no-")


def _give(random: Random, words: list[str], option: Option) -> None:
    """An odd value, instead of the one that is there if there is one; seldom none at all."""
    odd = (*WRONG, "3000", "100000") if option.name == "--ranks" else WRONG
    value = random.choice(odd) if _bare(option) in AMOUNTS else odd_word(random)
    if option.flag:
        words.append(option.name)
    elif option.name in words:
        words[words.index(option.name) + 1] = value
    else:
        words += random.choice(([option.name, value], [f"{option.name}={value}"], [option.name]))


@cache
def recipe_keys() -> tuple[str, ...]:
    from unisono.recipe import OPTIONS

    return (*OPTIONS, "base_lr", "num_gpus")


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
