"""`unisono train`: its options, which are those of a recipe; `runs/course.py` runs it."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any, get_args

from cyclopts import Group, Parameter, Token

from unisono.cli.gpus import Gpus, note_of_run
from unisono.cli.trusting import TrustOption, confirm
from unisono.launch.nodes import NodeOptions
from unisono.recipe import Recipe, option
from unisono.recipe_reading import ALIASES
from unisono.runs.recipe_source import read_recipe
from unisono.terminal import print

GROUPS = {
    "model": "The network",
    "data": "The data",
    "ranks": "Ranks and batches",
    "epochs": "Learning",
    "strategy": "How ranks work together",
    "eval_every": "Evaluation and early stop",
    "snapshot_every": "Nothing lost",
    "watts_per_core": "Output",
}
"""How --help cuts the options, which stand in the order of the recipe's fields: a group begins with the one named."""


def help_of_recipe() -> dict[str, str]:
    """What each option means."""
    import docstring_parser

    return {entry.arg_name: entry.description or "" for entry in docstring_parser.parse_from_object(Recipe).params}


def options_of_recipe(*without: str) -> type:
    """A dataclass with the options of `Recipe`, all None unless given: what is not given comes from the recipe.

    without: options that a command has no use for, or has itself.
    """
    help_of, options = help_of_recipe(), []
    group = None
    for entry in fields(Recipe):
        if entry.name in GROUPS:
            group = Group(GROUPS[entry.name], sort_key=list(GROUPS).index(entry.name))
        if entry.name in without:
            continue
        default = "" if entry.default in ("", MISSING) else f" [default: {entry.default}]"
        others = [option(alias) for alias, name in ALIASES.items() if name == entry.name]
        told = Parameter(
            help=f"{help_of[entry.name]}{default}", show_default=False, alias=others, group=group,
            converter=_whole_number if entry.type in (int, int | str) else None,
        )  # fmt: skip
        options.append((entry.name, Annotated[entry.type | None, told], field(default=None, kw_only=True)))  # type: ignore[operator]
    made = make_dataclass("Options", options, frozen=True)
    made.__module__ = __name__
    return made


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
    values = {entry.name: getattr(options, entry.name, None) for entry in fields(Recipe)}
    return {
        name: int(value) if isinstance(value, Gpus) else value for name, value in values.items() if value is not None
    }


def node_options(*without: str, **defaults: float) -> type:
    """The same of `NodeOptions`, with its defaults, or with others."""
    import docstring_parser

    help_of = {entry.arg_name: entry.description for entry in docstring_parser.parse_from_object(NodeOptions).params}
    group = Group("Several machines", sort_key=len(GROUPS))
    options = []
    for entry in fields(NodeOptions):
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
_OUTPUT = Group(GROUPS["watts_per_core"], sort_key=len(GROUPS) - 1)


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
    where = NodeOptions(**{entry.name: getattr(nodes, entry.name) for entry in fields(NodeOptions)})
    overrides = given_options(options)
    found, whose = read_recipe(recipe, overrides, "the command line", trusted=trust)
    if write_recipe:
        from unisono.cli.template import template, write_template

        write_template(write_recipe, template(found, GROUPS, help_of_recipe()))
        print(f"Written: {write_recipe}; edit it, then: unisono train {shlex.quote(write_recipe)}")
    else:
        from unisono.launch.environments import detect
        from unisono.launch.signals import exit_undisturbed
        from unisono.runs.course import run_course

        note = note_of_run(getattr(options, "ranks", None), found)
        if note and detect().rank == 0:
            print(note, file=sys.stderr, flush=True)
        run_course(found, where, overrides.get("ranks", 0), watch=watch, last=True, trust=whose, confirm=confirm)
        exit_undisturbed()
