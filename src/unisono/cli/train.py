"""`unisono train`: its options, which are those of a recipe; `runs/lifecycle.py` runs it.

--num-gpus is another name of --ranks, which users of other tools know. The number remembers by which word it was given,
so that a user who asks for GPUs and gets processors is told (`note_of_run`, `note_of_job`).
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any, final, get_args

from cyclopts import Group, Parameter, Token

from unisono.cli.common.trust_option import TrustOption, confirm_trust
from unisono.launch.machine_options import MachineOptions
from unisono.recipe import OPTIONS, Recipe, flag
from unisono.recipe.reading import ALIASES
from unisono.recipe.recipe import GROUPS, help_of_options, title_of
from unisono.runs.recipe_source import read_recipe
from unisono.safe_print import print

MOST_USED = ("model", "data", "ranks", "epochs", "batch_size", "lr", "optimizer", "seed", "out", "resume")
"""Options that --help shows first; the others follow by the recipe's groups."""
TITLES = ["Most used", *map(title_of, GROUPS)]
"""The headings of --help, from top to bottom."""


def options_of_recipe(*without: str) -> type:
    """A dataclass with the options of `Recipe`, all None unless given: what is not given comes from the recipe.

    without: options that a command has no use for, or has itself.
    """
    help_of, options = help_of_options(), []
    for name in sorted(OPTIONS.keys() - set(without), key=_place_in_help):
        entry = OPTIONS[name]
        title = TITLES[0] if name in MOST_USED else title_of(entry.group)
        default = "" if entry.default == "" else f" [default: {entry.default}]"
        told = Parameter(
            help=f"{help_of[name]}{default}", show_default=False, group=Group(title, sort_key=TITLES.index(title)),
            alias=[flag(alias) for alias, known in ALIASES.items() if known == name],
            converter=_whole_number if int in entry.kinds else None,
        )  # fmt: skip
        options.append((name, Annotated[entry.type | None, told], field(default=None, kw_only=True)))
    made = make_dataclass("Options", options, frozen=True)
    made.__module__ = __name__
    return made


def _place_in_help(name: str) -> int:
    """The most used first, in their order, then the others in that of the groups."""
    return MOST_USED.index(name) if name in MOST_USED else len(MOST_USED) + list(OPTIONS).index(name)


def _whole_number(kind: Any, tokens: Sequence[Token]) -> int | str:
    """As it is written: cyclopts alone would round 1.5, and the training would use 2. An option that may also be a word
    (full) is checked where the words are known."""
    text = tokens[0].value
    try:
        return Gpus(text) if tokens[0].keyword == "--num-gpus" else int(text)
    except ValueError:
        if str not in get_args(kind):
            raise ValueError(f"{text!r} is not a whole number") from None
        return text


def given_options(options: object) -> dict[str, Any]:
    """Those that were given, of what `options_of_recipe` made."""
    values = {name: getattr(options, name, None) for name in OPTIONS}
    return {
        name: int(value) if isinstance(value, Gpus) else value for name, value in values.items() if value is not None
    }


def node_options(*without: str, **defaults: float) -> type:
    """The same of `MachineOptions`, with its defaults, or with others."""
    import docstring_parser

    help_of = {entry.arg_name: entry.description for entry in docstring_parser.parse_from_object(MachineOptions).params}
    group = Group("Several machines", sort_key=len(TITLES))
    options = []
    for entry in fields(MachineOptions):
        if entry.name in without:
            continue
        usual = defaults.get(entry.name, entry.default)
        default = "" if usual in ("", MISSING) else f" [default: {usual}]"
        told = Parameter(help=f"{help_of[entry.name]}{default}", show_default=False, group=group)
        options.append((entry.name, Annotated[entry.type, told], field(default=usual, kw_only=True)))
    made = make_dataclass("Nodes", options, frozen=True)
    made.__module__ = __name__
    return made


@final
class Gpus(int):
    """A number of ranks that was given as --num-gpus."""


def note_of_run(asked: object, recipe: Recipe) -> str:
    """What to say before a run; nothing if no GPUs were asked for, or ranks have them."""
    if not isinstance(asked, Gpus):
        return ""
    from unisono.strategies.registry import of, resolve

    if not of(recipe).supports.gpus:
        return _without(asked, recipe)
    if resolve(recipe).strategy.device != "cpu":
        return ""
    why = "--device cpu" if recipe.strategy.device == "cpu" else "torch sees no GPU here"
    return f"Note: --num-gpus {asked} is --ranks {asked}, on processors: {why}."


def note_of_job(asked: object, recipe: Recipe, sbatch: Sequence[str]) -> str:
    """The same before a job, whose nodes cannot be looked at from here. sbatch: further options of the job."""
    if not isinstance(asked, Gpus):
        return ""
    from unisono.strategies.registry import of

    if not of(recipe).supports.gpus:
        return _without(asked, recipe)
    if any("gpu" in option or "gres" in option for option in sbatch):
        return ""
    told = f"Note: --num-gpus {asked} is --ranks {asked}: the job asks SLURM for no GPU"
    return f"{told}; where a cluster wants that, add --sbatch=--gpus-per-node=N."


def _without(asked: Gpus, recipe: Recipe) -> str:
    told = f"Note: --num-gpus {asked} is --ranks {asked}: --strategy {recipe.strategy.name} computes on processors"
    return f"{told}; --strategy ddp or accelerate uses GPUs."


Options = options_of_recipe()
Nodes = node_options()
_NOTHING = Options()
_HERE = Nodes()
_OUTPUT = Group(title_of("output"), sort_key=TITLES.index(title_of("output")))


def train(
    recipe: str = "",
    /,
    options: Annotated[Options, Parameter(name="*")] = _NOTHING,  # type: ignore[valid-type]
    nodes: Annotated[Nodes, Parameter(name="*")] = _HERE,  # type: ignore[valid-type]
    *,
    watch: Annotated[
        bool, Parameter(help="Serve a live page of the run while it lasts.", negative="", group=_OUTPUT)
    ] = False,
    write_recipe: Annotated[
        str, Parameter(help="Train nothing; write a TOML file with every option, explained.", group=_OUTPUT)
    ] = "",
    trust: TrustOption = False,
) -> None:
    """Train a network on this machine, on as many ranks as asked: more ranks change nothing but the time.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe (r2). Options given here override it.
    """
    where = MachineOptions(**{entry.name: getattr(nodes, entry.name) for entry in fields(MachineOptions)})
    overrides = given_options(options)
    found, whose = read_recipe(recipe, overrides, "the command line", trusted=trust)
    if write_recipe:
        from unisono.recipe.recipe import template, write_template

        write_template(write_recipe, template(found))
        print(f"Written: {write_recipe}; edit it, then: unisono train {shlex.quote(write_recipe)}")
    else:
        from unisono.environment.os_environ import detect
        from unisono.runs.lifecycle import run_lifecycle
        from unisono.supervise.signals import exit_undisturbed

        note = note_of_run(getattr(options, "ranks", None), found)
        if note and detect().rank == 0:
            print(note, file=sys.stderr, flush=True)
        run_lifecycle(
            found, where, overrides.get("ranks", 0), watch=watch, last=True, trust=whose, confirm=confirm_trust
        )
        exit_undisturbed()
