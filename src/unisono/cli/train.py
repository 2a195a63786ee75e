"""`unisono train`: its options, which are those of a recipe; `running.py` runs it."""

from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any

from cyclopts import Group, Parameter

from unisono.recipe import ALIASES, Recipe, load, option

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


def options_of_recipe(*without: str) -> type:
    """A dataclass with the options of `Recipe`, all None unless given: what is not given comes from the recipe.

    without: options that a command has no use for, or has itself.
    """
    import docstring_parser

    help_of = {entry.arg_name: entry.description for entry in docstring_parser.parse_from_object(Recipe).params}
    options = []
    group = None
    for entry in fields(Recipe):
        if entry.name in GROUPS:
            group = Group(GROUPS[entry.name], sort_key=list(GROUPS).index(entry.name))
        if entry.name in without:
            continue
        default = "" if entry.default in ("", MISSING) else f" [default: {entry.default}]"
        others = [option(alias) for alias, name in ALIASES.items() if name == entry.name]
        told = Parameter(help=f"{help_of[entry.name]}{default}", show_default=False, alias=others, group=group)
        options.append((entry.name, Annotated[entry.type | None, told], field(default=None, kw_only=True)))  # type: ignore[operator]
    made = make_dataclass("Options", options, frozen=True)
    made.__module__ = __name__
    return made


def given_options(options: object) -> dict[str, Any]:
    """Those that were given, of what `options_of_recipe` made."""
    values = {entry.name: getattr(options, entry.name, None) for entry in fields(Recipe)}
    return {name: value for name, value in values.items() if value is not None}


Options = options_of_recipe()
_NOTHING = Options()


def train(recipe: str = "", /, options: Annotated[Options, Parameter(name="*")] = _NOTHING) -> None:  # type: ignore[valid-type]
    """Train a network on this machine, on as many ranks as asked: more ranks change nothing but the time.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a shipped recipe (r2). Options given here go before it.
    """
    from unisono.cli.running import run_recipe

    overrides = given_options(options)
    if "resume" in overrides and not recipe:
        from unisono.train.resuming import recipe_of

        run_recipe(recipe_of(overrides["resume"], overrides))
    else:
        run_recipe(load(recipe, overrides))
