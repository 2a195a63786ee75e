"""`unisono train`: its options, which are those of a recipe; `runs/course.py` runs it."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any, get_args

from cyclopts import Group, Parameter, Token

from unisono.cli.common.num_gpus_alias import Gpus, note_of_run
from unisono.cli.common.trust_option import TrustOption, confirm_trust
from unisono.launch.machine_options import MachineOptions
from unisono.recipe import OPTIONS, flag
from unisono.recipe.options import GROUPS, help_of_options, title_of
from unisono.recipe.reading import ALIASES
from unisono.runs.recipe_source import read_recipe
from unisono.terminal import print

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
    """As it is written: cyclopts alone would round 1.5, and somebody would train with 2. What may also be a word (full)
    is left to whoever knows the words."""
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
        A TOML file, or the name of a shipped recipe (r2). Options given here go before it.
    """
    where = MachineOptions(**{entry.name: getattr(nodes, entry.name) for entry in fields(MachineOptions)})
    overrides = given_options(options)
    found, whose = read_recipe(recipe, overrides, "the command line", trusted=trust)
    if write_recipe:
        from unisono.recipe.template import template, write_template

        write_template(write_recipe, template(found))
        print(f"Written: {write_recipe}; edit it, then: unisono train {shlex.quote(write_recipe)}")
    else:
        from unisono.environment.variables import detect
        from unisono.runs.course import run_course
        from unisono.supervise.signals import exit_undisturbed

        note = note_of_run(getattr(options, "ranks", None), found)
        if note and detect().rank == 0:
            print(note, file=sys.stderr, flush=True)
        run_course(found, where, overrides.get("ranks", 0), watch=watch, last=True, trust=whose, confirm=confirm_trust)
        exit_undisturbed()
